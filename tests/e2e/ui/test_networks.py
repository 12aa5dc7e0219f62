"""Networks, as a person makes them, gives addresses out of them and takes them back."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.servers.web_page import Floor, Person

pytestmark = pytest.mark.browser

NewPerson = Callable[..., Person]


def saved(dialog: Locator, button: str) -> None:
    """Press it, and see that the dialog has nothing more to say."""
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_have_count(0)


def fill(dialog: Locator, **given: str) -> None:
    for label, text in given.items():
        dialog.get_by_label(label.replace("_", " "), exact=True).fill(text)


def gaps(page: Page) -> Locator:
    return page.get_by_role("region", name="Addresses").locator("[data-gap]")


def test_a_network_is_made_filled_and_taken_away_by_mouse(person: NewPerson, floor: Floor) -> None:
    node = floor.free_nodes()[0]
    one = person()
    one.log_in()
    page = one.page
    one.follow("Networks")
    expect(page.get_by_text("There is no network yet.")).to_be_visible()
    page.get_by_role("button", name="New network").click()
    dialog = page.get_by_role("dialog")
    fill(dialog, Name="storage", IPv4_subnet="10.78.0.1/24", VLAN="12")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("write it like 10.0.0.0/24")
    expect(dialog.get_by_label("IPv4 subnet")).to_have_attribute("aria-invalid", "true")
    fill(dialog, IPv4_subnet="10.78.0.0/24")
    saved(dialog, "Create")
    expect(page.get_by_role("heading", level=1)).to_have_text("storage")

    page.get_by_role("button", name="Add a range").click()
    fill(dialog, Name="host", First_address="10.78.0.10", Last_address="10.78.0.19")
    saved(dialog, "Add")
    page.get_by_role("button", name="Add a router").click()
    fill(dialog, Address="10.78.0.1")
    saved(dialog, "Add")
    expect(page.locator("[data-router='10.78.0.1']")).to_be_visible()
    expect(gaps(page)).to_have_count(1)

    page.get_by_role("button", name="Give an address").click()
    fill(dialog, Node=node, Address="10.78.0.12")
    saved(dialog, "Give")
    held = page.locator("[data-address='10.78.0.12']")
    expect(held.get_by_role("link", name=node)).to_be_visible()
    expect(gaps(page)).to_contain_text(["10.78.0.10 to 10.78.0.11", "10.78.0.13 to 10.78.0.19"])
    expect(page.locator("[data-range='host']")).to_contain_text("9 free")

    held.get_by_role("link", name=node).click()
    here = page.get_by_role("region", name="Addresses").locator("[data-address='10.78.0.12']")
    expect(here).to_contain_text("given by hand")
    here.get_by_role("link", name="storage").click()

    page.get_by_role("button", name="Change range host").click()
    fill(dialog, Last_address="10.78.0.29")
    saved(dialog, "Save")
    expect(page.locator("[data-range='host']")).to_contain_text("19 free")
    page.get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Delete storage").click()
    expect(page.locator("[data-note='refused']")).to_contain_text(node)

    page.get_by_role("button", name="Take back… 10.78.0.12").click()
    dialog.get_by_role("button", name="Take it back").click()
    expect(held).to_have_count(0)
    page.get_by_role("button", name="Remove… router 10.78.0.1").click()
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator("[data-router]")).to_have_count(0)
    page.get_by_role("button", name="Remove… range host").click()
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator("[data-range]")).to_have_count(0)
    page.get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Delete storage").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Networks")
    assert floor.api.get("/networks/storage").status_code == 404
    assert one.loads == 1


def test_a_network_is_followed_live_and_what_somebody_else_changed_is_not_overwritten(
    person: NewPerson, floor: Floor
) -> None:
    node = floor.free_nodes()[0]
    ranges = [{"name": "host", "first": "10.79.0.10", "last": "10.79.0.11"}]
    floor.call("POST", "/networks", {"name": "shared", "v4_subnet": "10.79.0.0/24", "ranges": ranges})
    one = person()
    one.log_in("/networks/shared")
    page = one.page
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Change…").click()
    floor.call("PATCH", "/networks/shared", {"description": "by somebody else", "vlan": 5})
    fill(dialog, Description="by me")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Somebody changed network shared since you read it.")
    expect(dialog.get_by_label("VLAN", exact=True)).to_have_value("5")
    assert floor.call("GET", "/networks/shared")["description"] == "by somebody else"
    saved(dialog, "Save")
    found = floor.call("GET", "/networks/shared")
    assert (found["description"], found["vlan"]) == ("by me", 5)

    floor.call("POST", "/networks/shared/allocations", {"node": node})
    expect(page.locator("[data-address='10.79.0.10']")).to_contain_text(node)
    floor.call("DELETE", "/networks/shared/allocations/10.79.0.10")
    expect(page.locator("[data-address]")).to_have_count(0)
    assert one.loads == 1
