"""What goes wrong and is put right, and what others see of it meanwhile."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.servers.web_page import Floor, Person
from tests.support.waiting import wait_until

pytestmark = pytest.mark.browser

NewPerson = Callable[..., Person]
ROLE = "test-milestone"


def light(page: Page, role: str, node: str, state: str) -> Locator:
    return page.get_by_role("button", name=f"{role} on {node}: {state}", exact=True)


def commit(page: Page) -> None:
    page.get_by_role("button", name="Plan and commit").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_role("button", name="Propose a change")).to_be_visible()


def test_a_failure_is_read_in_the_log_mended_and_retried_and_a_second_browser_sees_it_live(
    person: NewPerson, floor: Floor
) -> None:
    node = floor.free_nodes()[0]
    machine = floor.number(node)
    floor.call("POST", "/deployments", {"name": "fails"})
    floor.call("POST", "/node_roles", {"node": node, "role": "lab-base", "deployment": "fails"})
    floor.lab.break_down(machine, "the disk is full")
    try:
        one, other = person(), person(dark=True)
        one.log_in("/deployments/fails")
        other.log_in("/deployments/fails")
        one.page.get_by_role("button", name="Plan and commit").click()
        one.page.get_by_text("will lose all data").click()
        one.page.get_by_role("button", name="Commit and wipe").click()
        for page in (one.page, other.page):
            expect(light(page, "lab-base", node, "ERROR")).to_be_visible()

        light(one.page, "lab-base", node, "ERROR").click()
        one.page.get_by_role("link", name="Runs and log").click()
        expect(one.page.locator("[data-error]")).to_contain_text("the disk is full")
        expect(one.page.get_by_role("log")).to_contain_text(f"lab-base on {node}")
        other.follow("Overview")
        expect(other.page.get_by_role("link", name=f"lab-base on {node}")).to_be_visible()
    finally:
        floor.lab.mend(machine)
    one.page.get_by_role("button", name="Retry").click()
    expect(one.page.locator(".title [data-state='active']")).to_be_visible()
    expect(other.page.get_by_role("link", name=f"lab-base on {node}")).to_have_count(0)
    assert (one.loads, other.loads) == (1, 1)


def test_a_rollback_brings_back_what_an_earlier_snapshot_wanted(person: NewPerson, floor: Floor) -> None:
    kept, dropped = floor.free_nodes()[:2]
    floor.call("POST", "/deployments", {"name": "goes-back"})
    for node in (kept, dropped):
        floor.call("POST", "/node_roles", {"node": node, "role": ROLE, "deployment": "goes-back"})
    one = person()
    one.log_in("/deployments/goes-back")
    page = one.page
    commit(page)
    expect(light(page, ROLE, dropped, "ACTIVE")).to_be_visible()

    light(page, ROLE, dropped, "ACTIVE").click()
    page.get_by_role("button", name="Unbind").click()
    commit(page)
    expect(light(page, ROLE, dropped, "ACTIVE")).to_have_count(0)
    expect(light(page, ROLE, kept, "ACTIVE")).to_be_visible()

    line = page.get_by_role("region", name="Snapshots")
    line.get_by_role("button", name="#").click()
    line.get_by_role("button", name="head").click()
    line.get_by_role("button", name="Compare the two").click()
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_contain_text(f"removed:{ROLE} on {dropped}")
    page.keyboard.press("Escape")
    line.get_by_role("button", name="head").click()
    line.get_by_role("button", name="Roll back to").click()
    expect(light(page, ROLE, dropped, "PROPOSED")).to_be_visible()
    commit(page)
    expect(light(page, ROLE, dropped, "ACTIVE")).to_be_visible()
    assert one.loads == 1


def test_the_page_recovers_when_the_server_is_killed_and_shows_what_happened_since(
    person: NewPerson, floor: Floor
) -> None:
    node = floor.free_nodes()[0]
    floor.call("POST", "/deployments", {"name": "survives"})
    floor.call("POST", "/node_roles", {"node": node, "role": ROLE, "deployment": "survives"})
    one = person()
    one.log_in("/deployments/survives")
    expect(light(one.page, ROLE, node, "PROPOSED")).to_be_visible()

    floor.server.kill()
    expect(one.page.locator("[data-live='away']")).to_be_attached()
    expect(one.page.get_by_role("alert").get_by_text("The server is away")).to_be_visible()
    floor.server.start()
    floor.server.wait_ready()
    floor.call("POST", "/deployments/survives/commit", {})
    wait_until(lambda: floor.states("survives") == {"active"}, "it runs after the restart")

    expect(one.page.locator("[data-live='live']")).to_be_attached()
    expect(light(one.page, ROLE, node, "ACTIVE")).to_be_visible()
    assert one.loads == 1
