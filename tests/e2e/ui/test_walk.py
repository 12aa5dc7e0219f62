"""From a new deployment to installed machines, as a person does it: by mouse, and by keyboard alone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.servers.web_page import Floor, Person

pytestmark = pytest.mark.browser

INSTALL = "provisioner-os-install"
NewPerson = Callable[..., Person]


def head(page: Page, role: str) -> Locator:
    """The role's place in the head of the matrix."""
    return page.locator(f"[data-role='{role}']")


def palette_node(page: Page, node: str) -> Locator:
    return page.locator(f"[data-palette-node='{node}']")


def cell(page: Page, role: str, node: str) -> Locator:
    return page.get_by_role("button", name=f"{role} on {node}:")


def in_state(page: Page, role: str, node: str, state: str) -> Locator:
    return page.get_by_role("button", name=f"{role} on {node}: {state}", exact=True)


def chosen_system(floor: Floor, deployment: str, node: str) -> object:
    (noderole,) = floor.all("/node_roles", deployment=deployment, node=node, role=INSTALL)
    (attrib,) = [
        one for one in floor.all(f"/node_roles/{noderole['id']}/attribs") if one["name"] == "provisioner-target-os"
    ]
    return attrib["value"]


def test_two_machines_are_installed_by_mouse_and_the_page_is_never_loaded_again(
    person: NewPerson, floor: Floor
) -> None:
    first, second = floor.free_nodes()[:2]
    one = person()
    one.log_in()
    page = one.page

    page.get_by_role("button", name="New deployment").click()
    page.get_by_label("Name").fill("by-mouse")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name=f"Add {INSTALL} to the deployment").click()

    head(page, INSTALL).click()
    page.get_by_role("dialog").get_by_label("provisioner-target-os").select_option("ubuntu-24.04")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved in the proposal")).to_be_visible()
    page.keyboard.press("Escape")

    for node in (first, second):
        one.drag(palette_node(page, node), head(page, INSTALL))
        expect(in_state(page, INSTALL, node, "PROPOSED")).to_be_visible()

    cell(page, INSTALL, second).click()
    page.get_by_role("dialog").get_by_label("provisioner-target-os").select_option("debian-12")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("dialog [data-attrib='provisioner-target-os'] .now code")).to_have_text("debian-12")
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Plan and commit").click()
    wiped = page.get_by_role("region", name="Wiped")
    for node in (first, second):
        expect(wiped.get_by_text(node)).to_be_visible()
    for node, system in ((first, "ubuntu-24.04"), (second, "debian-12")):
        expect(wiped.get_by_text(f"{node}: {system} on ")).to_be_visible()
    commit = page.get_by_role("button", name="Commit and wipe")
    expect(commit).to_be_disabled()
    page.get_by_text("will lose all data").click()
    commit.click()

    for node in (first, second):
        expect(in_state(page, INSTALL, node, "ACTIVE")).to_be_visible()
        assert floor.lab.installs(floor.number(node)) == 1
    assert chosen_system(floor, "by-mouse", first) == "ubuntu-24.04"
    assert chosen_system(floor, "by-mouse", second) == "debian-12"
    assert one.loads == 1


def choose_by_keyboard(one: Person, system: str) -> None:
    """A list is chosen from by typing what an entry begins with."""
    field = one.page.get_by_role("dialog").get_by_label("provisioner-target-os")
    one.reach(field)
    one.page.keyboard.type(system)
    expect(field).to_have_value(f'"{system}"')
    one.press(one.page.get_by_role("dialog").get_by_role("button", name="Save"))


def test_the_same_walk_by_keyboard_alone(person: NewPerson, floor: Floor) -> None:
    first, second = floor.free_nodes()[:2]
    one = person()
    page = one.page
    page.goto("/")
    one.write(page.get_by_label("Name"), "admin")
    one.write(page.get_by_label("Password"), floor.password)
    page.keyboard.press("Enter")

    one.press(page.get_by_role("button", name="New deployment"))
    one.write(page.get_by_label("Name"), "by-keyboard")
    page.keyboard.press("Enter")
    one.press(page.get_by_role("button", name=f"Add {INSTALL} to the deployment"))

    one.press(head(page, INSTALL))
    choose_by_keyboard(one, "ubuntu-24.04")
    expect(page.get_by_text("Saved in the proposal")).to_be_visible()
    page.keyboard.press("Escape")

    for node in (first, second):
        one.press(palette_node(page, node).get_by_role("checkbox"), "Space")
    one.press(page.get_by_role("button", name=f"Bind 2 selected to {INSTALL}"))
    for node in (first, second):
        expect(in_state(page, INSTALL, node, "PROPOSED")).to_be_visible()

    # Into the matrix with Tab, within it with the arrows: first the row's box, then its first cell, then down.
    one.reach(page.get_by_role("table", name="Nodes and roles").get_by_role("checkbox").first)
    page.keyboard.press("ArrowRight")
    expect(cell(page, INSTALL, min(first, second))).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(cell(page, INSTALL, max(first, second))).to_be_focused()
    page.keyboard.press("Enter")
    choose_by_keyboard(one, "debian-12")
    expect(page.locator("dialog [data-attrib='provisioner-target-os'] .now code")).to_have_text("debian-12")
    page.keyboard.press("Escape")

    one.press(page.get_by_role("button", name="Plan and commit"))
    one.press(page.get_by_role("checkbox", name="will lose all data"), "Space")
    one.press(page.get_by_role("button", name="Commit and wipe"))
    for node in (first, second):
        expect(in_state(page, INSTALL, node, "ACTIVE")).to_be_visible()
    assert chosen_system(floor, "by-keyboard", min(first, second)) == "ubuntu-24.04"
    assert chosen_system(floor, "by-keyboard", max(first, second)) == "debian-12"
    assert one.loads == 1


def test_a_role_is_dragged_onto_one_of_several_selected_nodes_and_they_onto_another_role(
    person: NewPerson, floor: Floor
) -> None:
    first, second = floor.free_nodes()[:2]
    floor.call("POST", "/deployments", {"name": "both-ways"})
    floor.call("POST", "/deployment_roles", {"deployment": "both-ways", "role": "test-cluster"})
    one = person()
    one.log_in("/deployments/both-ways")
    page = one.page
    role = page.get_by_role("region", name="Roles").get_by_role("listitem").filter(has_text="test-milestone")
    one.drag(role, palette_node(page, first))
    expect(in_state(page, "test-milestone", first, "PROPOSED")).to_be_visible()

    for node in (first, second):
        palette_node(page, node).get_by_role("checkbox").check()
    one.drag(palette_node(page, second), head(page, "test-cluster"))
    for node in (first, second):
        expect(in_state(page, "test-cluster", node, "PROPOSED")).to_be_visible()


def refusal(floor: Floor, deployment: str, node: str, role: str) -> str:
    """The server's own words."""
    answer = floor.api.post(
        "/node_roles", params={"dry_run": True}, json={"node": node, "role": role, "deployment": deployment}
    )
    assert answer.status_code == 409
    return str(answer.json()["detail"])


def bound(floor: Floor) -> list[tuple[str, str, str]]:
    return sorted((one["node"], one["role"], one["state"]) for one in floor.all("/node_roles"))


def test_a_conflicting_drop_is_marked_refused_with_the_reason_and_changes_nothing(
    person: NewPerson, floor: Floor
) -> None:
    node = floor.free_nodes()[-1]
    floor.call("POST", "/deployments", {"name": "conflicts"})
    floor.call("POST", "/node_roles", {"node": node, "role": "test-conflict-silent", "deployment": "conflicts"})
    floor.call("POST", "/deployment_roles", {"deployment": "conflicts", "role": "test-conflict-says"})
    reason = refusal(floor, "conflicts", node, "test-conflict-says")
    before = bound(floor)

    one = person()
    one.log_in("/deployments/conflicts")
    onto = head(one.page, "test-conflict-says")
    one.hold(palette_node(one.page, node), onto)
    expect(one.page.locator("th[data-mark='refuses']", has=onto)).to_be_visible()
    expect(one.page.locator(".ghost")).to_contain_text(reason)
    one.page.mouse.up()
    expect(one.page.locator("[data-note='refused']")).to_contain_text(reason)
    assert bound(floor) == before


def test_an_admin_node_cannot_be_dropped_onto_an_install(person: NewPerson, floor: Floor) -> None:
    (admin,) = [node["name"] for node in floor.all("/nodes", admin=True)]
    floor.call("POST", "/deployments", {"name": "no-admin"})
    floor.call("POST", "/deployment_roles", {"deployment": "no-admin", "role": INSTALL})
    before = bound(floor)

    one = person()
    one.log_in("/deployments/no-admin")
    one.drag(palette_node(one.page, admin), head(one.page, INSTALL))
    expect(one.page.locator("[data-note='refused']")).to_contain_text(refusal(floor, "no-admin", admin, INSTALL))
    assert bound(floor) == before
