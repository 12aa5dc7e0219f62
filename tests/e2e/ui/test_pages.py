"""Every page: nothing that axe calls serious, nothing that sticks out of a phone, and a picture of it in each theme."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.servers.web_page import Floor, Person
from tests.support.waiting import wait_until

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[3]
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
SCREENS = ROOT / "build" / "screens"
SERIOUS = ("serious", "critical")

PAGES = {
    "overview": "/",
    "deployments": "/deployments",
    "deployment": "/deployments/shown",
    "nodes": "/nodes",
    "node": "/nodes/{node}",
    "noderole": "/noderoles/{noderole}",
    "inputs": "/noderoles/{wanting}",
    "networks": "/networks",
    "network": "/networks/{network}",
    "graph": "/graph?by=none",
    "annealer": "/annealer",
    "roles": "/barclamps",
    "hooks": "/hooks",
    "events": "/events",
    "people": "/people",
}


@pytest.fixture(scope="module")
def places(floor: Floor) -> dict[str, object]:
    """Something to show: a deployment with what is committed, and a proposal on top."""
    first, second, third = floor.free_nodes()[:3]
    floor.call("POST", "/deployments", {"name": "shown", "description": "Something to look at"})
    for node in (first, second):
        floor.call("POST", "/node_roles", {"node": node, "role": "test-milestone", "deployment": "shown"})
    floor.call("POST", "/node_roles", {"node": second, "role": "test-parent", "deployment": "shown"})
    wanting = {"node": first, "role": "test-wanting", "deployment": "shown"}
    taker = floor.call("POST", "/node_roles", wanting)["id"]
    floor.call("POST", "/deployments/shown/commit", {})
    wait_until(lambda: floor.states("shown") == {"active"}, "it is committed")
    floor.call("POST", "/deployments/shown/propose")
    floor.call("POST", "/node_roles", {"node": third, "role": "lab-web", "deployment": "shown"})
    (noderole,) = floor.all("/node_roles", node=first, role="ssh-access")
    network = _network(floor, first, second)
    return {"node": first, "noderole": noderole["id"], "wanting": taker, "network": network}


def _network(floor: Floor, *nodes: str) -> str:
    """One of both families, with all that a network can have, and a name as long as it may be."""
    name = "storage-of-the-third-and-the-fourth-rack"
    ranges = [
        {"name": "host", "first": "10.66.0.10", "last": "10.66.0.99"},
        {"name": "dhcp", "use": "dynamic", "first": "10.66.0.200", "last": "10.66.0.250"},
        {"name": "host6", "first": "fd66::10", "last": "fd66::ffff:ffff:ffff:ffff"},
    ]
    subnets = {"v4_subnet": "10.66.0.0/24", "v6_subnet": "fd66::/64", "vlan": 66}
    routers = [{"address": "10.66.0.1"}, {"address": "fd66::1"}]
    said = {"name": name, "description": "Where the disks are", "ranges": ranges, "routers": routers}
    floor.call("POST", "/networks", {**said, **subnets})
    floor.call("POST", "/networks", {"name": "bare", "v4_subnet": "10.67.0.0/24"})
    for node, address in zip(nodes, ("10.66.0.12", "10.66.0.40"), strict=True):
        floor.call("POST", f"/networks/{name}/allocations", {"node": node, "address": address})
        floor.call("POST", f"/networks/{name}/allocations", {"node": node})
    return name


@pytest.fixture(scope="module", params=["light", "dark"])
def viewer(request: pytest.FixtureRequest, browser: Browser, floor: Floor) -> Iterator[tuple[str, Person]]:
    theme = request.param
    one = Person(browser, floor, dark=theme == "dark")
    one.log_in()
    yield theme, one
    one.close()


def settle(page: Page) -> None:
    expect(page.get_by_role("main").get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Loading…")).to_have_count(0)


def trouble(page: Page) -> list[str]:
    """What axe finds that keeps people out, in one line each."""
    page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_nobody_out(name: str, viewer: tuple[str, Person], places: dict[str, object]) -> None:
    theme, one = viewer
    one.page.goto(PAGES[name].format(**places))
    settle(one.page)
    one.page.screenshot(path=SCREENS / f"{name}-{theme}.png")
    assert trouble(one.page) == []


def test_a_node_shows_where_its_cables_lead(viewer: tuple[str, Person], places: dict[str, object]) -> None:
    _, one = viewer
    one.page.goto(f"/nodes/{places['node']}")
    link = one.page.get_by_role("region", name="Links").locator("[data-link='eth0']")
    expect(link).to_contain_text(re.compile(r"connected to leaf-1 port Ethernet\d"))


def test_the_login_page_keeps_nobody_out(browser: Browser, floor: Floor) -> None:
    for theme in ("light", "dark"):
        one = Person(browser, floor, dark=theme == "dark")
        one.page.goto("/")
        expect(one.page.get_by_role("button", name="Log in")).to_be_visible()
        one.page.screenshot(path=SCREENS / f"login-{theme}.png")
        assert trouble(one.page) == []
        one.close()


def test_the_dialogs_keep_nobody_out(viewer: tuple[str, Person], places: dict[str, object]) -> None:
    theme, one = viewer
    page = one.page
    page.goto("/deployments/shown")
    settle(page)
    page.get_by_role("button", name="Plan and commit").click()
    expect(page.get_by_role("button", name="Commit and wipe")).to_be_visible()
    page.screenshot(path=SCREENS / f"plan-{theme}.png")
    assert trouble(page) == []
    page.keyboard.press("Escape")
    page.locator("[data-role='provisioner-os-install']").click()
    expect(page.get_by_role("dialog").get_by_label("provisioner-target-os")).to_be_visible()
    page.screenshot(path=SCREENS / f"attributes-{theme}.png")
    assert trouble(page) == []
    page.goto(f"/networks/{places['network']}")
    settle(page)
    page.get_by_role("button", name="Change range host", exact=True).click()
    expect(page.get_by_role("dialog").get_by_label("First address")).to_be_visible()
    page.screenshot(path=SCREENS / f"range-{theme}.png")
    assert trouble(page) == []


def test_no_page_sticks_out_of_a_phone(browser: Browser, floor: Floor, places: dict[str, object]) -> None:
    one = Person(browser, floor, width=390, height=800)
    one.log_in()
    wide = []
    for name, path in PAGES.items():
        one.page.goto(path.format(**places))
        settle(one.page)
        one.page.screenshot(path=SCREENS / f"{name}-phone.png")
        width = one.page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide.append(f"{name} is {width} wide")
    one.close()
    assert wide == []
