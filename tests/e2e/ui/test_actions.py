"""What people do on the pages beside binding: the cap, a pass by hand, power, reinstalling, users. And two people at
once: nobody overwrites what somebody else did without being told."""

from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.support.machines.ssh_node import ssh_node
from tests.support.servers.web_page import Database, Floor, Person, serving
from tests.support.waiting import wait_until

from rackwright.lab.machine import PowerState

pytestmark = pytest.mark.browser

NewPerson = Callable[..., Person]
INSTALL = "provisioner-os-install"
PARENT, CHILD = (f"test-{role} on n1.rack.example: succeeded" for role in ("parent", "child"))
STALE = "Nothing was done. You see it now as it is"


def refusal(page: Page) -> Locator:
    return page.locator("[data-note='refused']")


# --- the annealer


def test_the_cap_is_set_and_who_saw_the_old_one_is_told_and_shown_the_new_one(person: NewPerson, floor: Floor) -> None:
    one, other = person(), person()
    fields = []
    for somebody in (one, other):
        somebody.log_in("/annealer")
        field = somebody.page.get_by_label("Cap", exact=True)
        expect(field).to_have_value("10")
        fields.append(field)
    mine, theirs = fields
    theirs.fill("7")

    mine.fill("5")
    one.page.get_by_role("button", name="Set", exact=True).click()
    wait_until(lambda: floor.call("GET", "/anneal/cap")["cap"] == 5, "the cap is 5")

    other.page.get_by_role("button", name="Set", exact=True).click()
    expect(refusal(other.page)).to_contain_text(f"Somebody changed the cap since you read it. {STALE}")
    expect(theirs).to_have_value("5")
    assert floor.call("GET", "/anneal/cap")["cap"] == 5

    theirs.fill("auto")
    other.page.get_by_role("button", name="Set", exact=True).click()
    expect(mine).to_have_value("auto")
    assert floor.call("GET", "/anneal/cap")["cap"] == "auto"


@pytest.fixture
def by_hand(database: Database, tmp_path: Path) -> Iterator[Floor]:
    """A server without annealer, and without machines."""
    with database(tmp_path.name) as url, serving(tmp_path, url, "--manual") as server:
        floor = Floor(server, None, *server.secrets())
        yield floor
        floor.api.close()


def test_a_server_without_annealer_works_pass_by_pass_as_its_button_is_pressed(
    browser: Browser, by_hand: Floor
) -> None:
    by_hand.call("POST", "/nodes", {"name": "n1.rack.example", "alive": True})
    by_hand.call("POST", "/deployments", {"name": "by-hand"})
    by_hand.call("POST", "/node_roles", {"node": "n1.rack.example", "role": "test-child", "deployment": "by-hand"})
    by_hand.call("POST", "/deployments/by-hand/commit", {})
    one = Person(browser, by_hand)
    one.log_in("/annealer")
    page = one.page
    queue = page.get_by_role("region", name="Queue")
    expect(queue.get_by_role("link", name="test-parent on n1.rack.example")).to_be_visible()
    assert by_hand.all("/runs") == []
    told = page.get_by_role("region", name="The pass")
    ran: list[str] = []

    def one_pass() -> bool:
        page.get_by_role("button", name="One pass by hand").click()
        expect(told.get_by_role("heading")).to_contain_text("The pass ran")
        ran.extend(line.strip() for line in told.get_by_role("listitem").all_inner_texts())
        told.get_by_role("button", name="Close").click()
        expect(told).to_have_count(0)
        return CHILD in ran

    # A pass does what can be done then: what stands on something waits for the next, and a hook may need one more try.
    wait_until(one_pass, "the child has run")
    assert ran.index(PARENT) < ran.index(CHILD)
    assert by_hand.states("by-hand") == {"active"}
    one.close()


# --- machines


def test_a_machine_is_switched_off_on_and_reset_by_its_controller(person: NewPerson, floor: Floor) -> None:
    node = floor.free_nodes()[0]
    machine = floor.machine(node)
    one = person()
    one.log_in(f"/nodes/{node}")
    page = one.page

    page.get_by_role("button", name="Off…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What runs on it is cut off.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert machine.power is PowerState.ON

    page.get_by_role("button", name="Off…").click()
    dialog.get_by_role("button", name="Power off").click()
    wait_until(lambda: machine.power is PowerState.OFF, "it is off")

    page.get_by_role("button", name="Power on").click()
    wait_until(lambda: machine.boot_id != "", "it is on again, and has booted")
    before = machine.boot_id
    page.get_by_role("button", name="Reset…").click()
    dialog.get_by_role("button", name="Reset").click()
    wait_until(lambda: machine.boot_id not in ("", before), "it has booted once more")
    expect(page.get_by_role("region", name="Machine")).to_contain_text(machine.boot_id)
    expect(refusal(page)).to_have_count(0)


def test_a_machine_is_reinstalled_only_when_it_is_confirmed(person: NewPerson, floor: Floor) -> None:
    node = floor.free_nodes()[0]
    number = floor.number(node)
    floor.call("POST", "/deployments", {"name": "again"})
    floor.call("POST", "/node_roles", {"node": node, "role": INSTALL, "deployment": "again"})
    floor.call("POST", "/deployments/again/commit", {})
    wait_until(lambda: floor.states("again") == {"active"}, "it is installed")
    assert floor.lab.installs(number) == 1
    one = person()
    one.log_in(f"/nodes/{node}")
    page = one.page
    page.get_by_role("button", name="Reinstall…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("All data on it is lost.")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert floor.lab.installs(number) == 1

    page.get_by_role("button", name="Reinstall…").click()
    expect(dialog.get_by_role("button", name="Reinstall")).to_be_disabled()
    dialog.get_by_label("vda1 ext4 “root” 512.0 GB on disk-").check()
    dialog.get_by_role("button", name="Reinstall").click()
    wait_until(lambda: floor.lab.installs(number) == 2, "it is installed anew")
    wait_until(lambda: floor.states("again") == {"active"}, "all that stood on it is done again")
    expect(page.get_by_role("progressbar", name="Install progress")).to_have_attribute("value", "100")


def test_a_commit_is_confirmed_by_the_data_that_it_wipes(person: NewPerson, floor: Floor) -> None:
    node = floor.free_nodes()[0]
    machine = floor.machine(node)
    machine.contents = [
        {"device": "vda1", "type": "ext4", "label": "pgdata", "bytes": 2 * 10**12, "mounted_on": "/srv"}
    ]
    floor.call("POST", f"/nodes/{node}/power", {"action": "reset"})
    wait_until(lambda: "pgdata" in str(floor.call("GET", f"/nodes/{node}")["discovery"]["disks"]), "it is reported")
    wait_until(lambda: floor.states("system") == {"active"}, "the machine is managed")
    floor.call("POST", "/deployments", {"name": "wiping"})
    floor.call("POST", "/node_roles", {"node": node, "role": INSTALL, "deployment": "wiping"})
    data = "vda1 ext4 “pgdata” 2.0 TB, last mounted on /srv"
    one = person()
    one.log_in(f"/nodes/{node}")
    page = one.page
    expect(page.get_by_role("region", name="Disks")).to_contain_text(data)
    label = page.get_by_role("region", name="Inventory").get_by_text("pgdata", exact=True).bounding_box()
    assert label is not None
    assert label["height"] < 30, "one line, however deep it is nested"
    page.goto(f"{floor.server.address}/deployments/wiping")
    page.get_by_role("button", name="Plan and commit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("region", name="Wiped")).to_contain_text(data)
    commit = dialog.get_by_role("button", name="Commit and wipe")
    expect(commit).to_be_disabled()
    dialog.get_by_label(data).check()
    machine.contents[0]["label"] = "ledger"
    floor.call("POST", f"/nodes/{node}/power", {"action": "reset"})
    wait_until(lambda: "ledger" in str(floor.call("GET", f"/nodes/{node}")["discovery"]["disks"]), "it is reported")
    commit.click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since you saw its plan")
    expect(dialog.get_by_role("alert")).to_contain_text(STALE)
    expect(dialog.get_by_role("alert")).to_be_focused()
    expect(dialog.get_by_role("alert")).to_be_in_viewport(ratio=1)
    expect(dialog.get_by_role("region", name="Wiped")).to_contain_text("ledger")
    expect(commit).to_be_disabled()
    dialog.get_by_label("“ledger”").check()
    commit.click()
    wait_until(lambda: floor.states("wiping") == {"active"}, "it is installed")
    assert floor.lab.installs(floor.number(node)) == 1


def test_a_reinstall_that_was_changed_meanwhile_says_so_where_the_person_is(person: NewPerson, floor: Floor) -> None:
    node = floor.free_nodes()[0]
    number = floor.number(node)
    floor.call("POST", "/deployments", {"name": "later"})
    floor.call("POST", "/node_roles", {"node": node, "role": INSTALL, "deployment": "later"})
    floor.call("POST", "/deployments/later/commit", {})
    wait_until(lambda: floor.states("later") == {"active"}, "it is installed")
    one = person(dark=True, height=500)
    one.log_in(f"/nodes/{node}")
    one.press(one.page.get_by_role("button", name="Reinstall…"))
    dialog = one.page.get_by_role("dialog")
    one.press(dialog.get_by_label("“root”"), "Space")
    floor.call("PATCH", f"/nodes/{node}", {"description": "looked at meanwhile"})
    floor.call("POST", "/deployments/later/propose")
    noderole = next(row["id"] for row in floor.all("/node_roles", deployment="later", node=node, role=INSTALL))
    floor.call("PUT", f"/node_roles/{noderole}/attribs/provisioner-storage", {"value": "lvm"})
    floor.call("POST", "/deployments/later/commit", {})
    one.press(dialog.get_by_role("button", name="Reinstall"))
    expect(dialog.get_by_role("alert")).to_contain_text(STALE)
    expect(dialog.get_by_role("alert")).to_be_focused()
    expect(dialog.get_by_role("alert")).to_be_in_viewport(ratio=1)
    expect(dialog.get_by_role("button", name="Reinstall")).to_be_disabled()
    assert floor.lab.installs(number) == 1
    one.press(dialog.get_by_label("“root”"), "Space")
    one.press(dialog.get_by_role("button", name="Reinstall"))
    expect(dialog).to_have_count(0)


# --- people


def test_a_user_is_made_given_a_role_and_a_deployment_and_removed(person: NewPerson, floor: Floor) -> None:
    floor.call("POST", "/deployments", {"name": "hers"})
    one = person()
    one.log_in("/people")
    page = one.page
    page.get_by_role("button", name="New user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("eve")
    dialog.get_by_label("Password").fill("short")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("password")
    dialog.get_by_label("Password").fill("correct horse battery")
    dialog.get_by_role("button", name="Create").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("cell", name="eve", exact=True))
    expect(row).to_be_visible()
    assert floor.call("GET", "/users/eve")["role"] == "viewer"

    role = row.get_by_label("Role of eve")
    role.select_option("operator")
    wait_until(lambda: floor.call("GET", "/users/eve")["role"] == "operator", "eve is an operator")
    expect(role).to_have_value("operator")
    row.get_by_role("button", name="Add a deployment for eve").click()
    dialog.get_by_label("Deployment, and all below it").select_option("hers")
    dialog.get_by_label("Role").select_option("admin")
    dialog.get_by_role("button", name="Give").click()
    expect(row).to_contain_text("hers: admin")
    assert floor.call("GET", "/users/eve")["grants"] == {"hers": "admin"}

    row.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete eve").click()
    expect(row).to_have_count(0)
    assert [user["name"] for user in floor.all("/users")] == ["admin"]


# --- two people at once


def test_who_unbinds_what_somebody_else_changed_is_told_and_shown_it_first(person: NewPerson, floor: Floor) -> None:
    node = floor.free_nodes()[0]
    floor.call("POST", "/deployments", {"name": "two-people"})
    binding = {"node": node, "role": "test-wanting", "deployment": "two-people"}
    noderole = floor.call("POST", "/node_roles", binding)["id"]
    one = person()
    one.log_in("/deployments/two-people")
    page = one.page
    light = page.get_by_role("button", name=f"test-wanting on {node}: PROPOSED", exact=True)
    light.click()
    dialog = page.get_by_role("dialog")
    now = dialog.locator("[data-attrib='test-wanting-own'] .now code")
    expect(now).to_have_text("7")
    expect(dialog.get_by_role("button", name="Unbind")).to_be_enabled()

    floor.call("PUT", f"/node_roles/{noderole}/attribs/test-wanting-own", {"value": 42})
    dialog.get_by_role("button", name="Unbind").click()
    expect(refusal(page)).to_contain_text(f"Somebody changed test-wanting on {node} since you read it. {STALE}")
    expect(now).to_have_text("42")
    assert floor.call("GET", f"/node_roles/{noderole}")["state"] == "proposed"

    dialog.get_by_role("button", name="Unbind").click()
    expect(light).to_have_count(0)
    assert floor.api.get(f"/node_roles/{noderole}").status_code == 404


def test_inputs_are_shown_with_the_noderole_and_the_node_they_come_from_and_follow_it(
    person: NewPerson, floor: Floor
) -> None:
    here, there = floor.free_nodes()[:2]
    floor.call("POST", "/deployments", {"name": "takes"})
    parent = floor.call("POST", "/node_roles", {"node": there, "role": "test-parent", "deployment": "takes"})["id"]
    wanting = floor.call("POST", "/node_roles", {"node": here, "role": "test-wanting", "deployment": "takes"})["id"]
    floor.call("POST", "/deployments/takes/commit", {})
    wait_until(lambda: floor.states("takes") == {"active"}, "both are done")
    one = person()
    one.log_in(f"/noderoles/{wanting}")
    page = one.page
    row = page.locator("[data-input='test-parent-template']")
    expect(row).to_contain_text("from the template")
    expect(row.get_by_role("link", name="test-parent")).to_have_attribute("href", f"/noderoles/{parent}")
    expect(page.locator("[data-input='test-node-default']").get_by_role("link")).to_have_text("the node itself")

    floor.call("POST", "/deployments/takes/propose")
    floor.call("PUT", f"/node_roles/{parent}/attribs/test-parent-template", {"value": "by a person"})
    floor.call("POST", "/deployments/takes/commit", {})
    expect(row).to_contain_text("by a person")
    expect(row).to_contain_text("user")

    row.get_by_role("link", name=there).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(there)
    page.goto(f"/nodes/{here}")
    taken = page.get_by_role("region", name="From other nodes").get_by_role("listitem")
    expect(taken).to_contain_text(f"test-wanting takes from test-parent on {there}")
    expect(taken).to_contain_text("by a person")


# --- nodes


def test_a_machine_that_runs_is_added_its_host_key_pinned_and_the_node_renamed(
    person: NewPerson, floor: Floor, tmp_path: Path
) -> None:
    somebody = person()
    somebody.log_in("/nodes")
    page = somebody.page
    [server_key] = floor.call("GET", "/server_keys")["items"]
    with ssh_node(tmp_path / "machine", asyncssh.import_public_key(server_key["key"])) as machine:
        page.get_by_role("button", name="Add a node").click()
        page.get_by_label("Full name").fill("runs.rack.example")
        page.get_by_label("It runs already").check()
        expect(page.locator("[data-server-key]")).to_have_text(server_key["key"])
        page.get_by_label("Address", exact=True).fill(machine.address)
        page.get_by_role("button", name="Add", exact=True).click()

        reached = page.get_by_role("region", name="Reached by")
        shown = asyncssh.import_public_key(machine.host_key).get_fingerprint()
        expect(reached.get_by_role("status")).to_contain_text(shown)
        reached.get_by_role("button", name="Pin this host key").click()
        # What was said before goes when the page has heard of the pin, which may be a moment later.
        expect(reached.get_by_role("status").filter(has_text="The server is let in.")).to_be_visible()
        expect(reached.get_by_role("status")).to_have_count(1)
        assert floor.call("GET", "/nodes/runs.rack.example")["host_key"] == shown

        page.get_by_role("button", name="Rename…").click()
        page.get_by_label("New full name").fill("store.rack.example")
        page.get_by_role("button", name="Rename", exact=True).click()
        expect(page.get_by_role("heading", name="store.rack.example")).to_be_visible()
        expect(page.get_by_role("region", name="Noderoles").get_by_role("link", name="ssh-access")).to_be_visible()
        # Pinning had ssh-access run again, and a node with a run under way is not deleted.
        wait_until(
            lambda: floor.api.request("DELETE", "/nodes/store.rack.example").is_success,
            "the node is deleted once its run is over",
        )
