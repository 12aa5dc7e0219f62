"""What people do to deployments themselves: take a role out, rename and move one, and change the system deployment."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from tests.support.servers.web_page import Floor, Person
from tests.support.waiting import wait_until

pytestmark = pytest.mark.browser

NewPerson = Callable[..., Person]


def test_a_deployment_is_renamed_moved_and_a_role_taken_out(person: NewPerson, floor: Floor) -> None:
    for name in ("below-here", "named-badly"):
        floor.call("POST", "/deployments", {"name": name})
    floor.call("POST", "/deployment_roles", {"deployment": "named-badly", "role": "test-child"})
    floor.call("POST", "/deployments/named-badly/commit", {})
    one = person()
    one.log_in("/deployments/named-badly")
    page = one.page
    page.get_by_role("button", name="Rename or move").click()
    page.get_by_label("Name", exact=True).fill("named-well")
    page.get_by_label("Under").select_option("below-here")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="named-well", exact=True)).to_be_visible()
    assert floor.call("GET", "/deployments/named-well")["parent"] == "below-here"

    page.locator("button[data-role='test-child']").click()
    page.get_by_role("button", name="Take out of named-well").click()
    page.get_by_role("button", name="Take test-child out").click()
    page.get_by_role("button", name="Plan and commit").click()
    expect(page.get_by_role("region", name="Roles taken out")).to_contain_text("test-child")
    page.get_by_role("button", name="Commit", exact=True).click()
    wait_until(lambda: floor.all("/deployment_roles", deployment="named-well") == [], "the role is gone")


def test_what_runs_again_in_the_system_deployment_is_asked_first(person: NewPerson, floor: Floor) -> None:
    one = person()
    one.log_in("/deployments/system")
    page = one.page
    page.locator("button[data-role='test-discovery']").click()
    page.get_by_role("dialog").get_by_label("test-discovery-note").fill("root")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("is in force at once. These run again")).to_be_visible()
    page.get_by_role("button", name="Not yet").click()
    attrib = floor.call("GET", "/deployments/system/attribs/test-discovery-note")
    assert "deployment" not in {layer["source"] for layer in attrib["layers"]}
