"""Hooks in real worker processes, on a real PostgreSQL: which is called when, and with what."""

import pytest
from tests.integration.annealer.hooked_roles import N1, ROLES, anneal_hooked, change_node, make_web
from tests.support.networks import STORAGE
from tests.support.servers.hooked_barclamps import Hooked, failing_calls

from rackwright.domain.states import ACTIVE, BLOCKED, PROPOSED, TODO, TRANSITION, NodeRoleState
from rackwright.store.hooks.hook_calls import MAX_RECALLS
from rackwright.store.hooks.hook_queue import retry_call
from rackwright.store.machines.nodes import NewNode, create_node, delete_node, move_node, record_boot
from rackwright.store.networks import networks
from rackwright.store.networks.allocations import ensure_addresses

# --- noderoles


async def test_a_child_never_overtakes_its_parents_on_active(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Parent(RoleHooks):
            role = "hooked-parent"
            def on_active(self, noderole):
                note("on_active", noderole)
                return SetNode(bootenv="local")
        """,
    )
    await make_web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "hooked-parent"), ("n2", "hooked-child"))
    assert await anneal_hooked(rack) == [("n1", "hooked-parent")]
    assert await rack.state("n1", "hooked-parent") is ACTIVE
    assert await rack.state("n2", "hooked-child") is TODO
    assert await hooked.deliver() == []
    [(hook, noderole)] = hooked.noted()
    assert (hook, noderole["role"], noderole["state"]) == ("on_active", "hooked-parent", int(ACTIVE))
    assert noderole["node"]["bootenv"] == ""
    assert await rack.rows("SELECT bootenv FROM nodes WHERE name = :name", name=N1) == [("local",)]
    assert await anneal_hooked(rack) == [("n2", "hooked-child")]


async def test_nothing_starts_on_a_node_before_its_noderoles_hooks_ran(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Parent(RoleHooks):
            role = "hooked-parent"
            def on_proposed(self, noderole):
                note("on_proposed", noderole)
        """,
    )
    await make_web(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "hooked-unbound"))
    await rack.propose("web")
    await rack.bind("web", ("n1", "hooked-parent"))
    await rack.deployment("other")
    await rack.deploy("other", ("n2", "hooked-unbound"))
    assert await anneal_hooked(rack) == [("n2", "hooked-unbound")]
    await hooked.deliver()
    assert await anneal_hooked(rack) == [("n1", "hooked-unbound")]


async def test_each_transition_is_told_in_order_and_as_it_was(hooked: Hooked) -> None:
    rack = hooked.rack
    names = [f"on_{state.label}" for state in NodeRoleState]
    methods = "".join(f"\n    def {name}(self, noderole):\n        note({name!r}, noderole)\n" for name in names)
    await hooked.load(ROLES, f"\nclass Child(RoleHooks):\n    role = 'hooked-child'\n{methods}")
    await make_web(rack, "n1")
    await rack.deploy("web", ("n1", "hooked-child"))
    await hooked.deliver()
    await rack.anneal()
    await hooked.deliver()
    [run] = await rack.claim()
    await rack.finish(run, ok=False)
    await hooked.deliver()
    told = [(hook, NodeRoleState(view["state"])) for hook, view in hooked.noted()]
    assert told == [
        ("on_proposed", PROPOSED),
        ("on_blocked", BLOCKED),
        ("on_todo", TODO),
        ("on_transition", TRANSITION),
        ("on_error", NodeRoleState.ERROR),
    ]
    assert hooked.noted()[-1][1]["error"] == "broken"


async def test_hooks_of_a_role_that_is_not_bound_there_are_not_called_for_transitions(hooked: Hooked) -> None:
    await hooked.load(
        ROLES,
        """
        class Unbound(RoleHooks):
            role = "hooked-unbound"
            def on_active(self, noderole):
                note("on_active", noderole)
        """,
    )
    await make_web(hooked.rack, "n1")
    await hooked.rack.deploy("web", ("n1", "hooked-child"))
    await hooked.rack.anneal()
    await hooked.deliver()
    assert hooked.noted() == []


# --- nodes


async def test_node_hooks_are_called_for_all_roles_bound_or_not(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Unbound(RoleHooks):
            role = "hooked-unbound"
            def on_node_create(self, node):
                note("create", node)
            def on_node_update(self, node):
                assert isinstance(node, NodeView) and node.changed == {"bootenv"}
                note("update", node)
            def on_node_delete(self, node):
                note("delete", node)
        """,
    )
    node = await rack.do(
        lambda session: create_node(session, NewNode(N1, alive=True, macs=["02:00:00:00:00:01"], discovery={"a": 1}))
    )
    await hooked.deliver()
    await change_node(rack, "n1.rack.example", bootenv="sledgehammer")
    await hooked.deliver()
    await rack.anneal()
    await rack.do(lambda session: delete_node(session, node))
    assert await hooked.deliver() == []
    created, updated, deleted = [view for _, view in hooked.noted()]
    assert hooked.noted_names() == ["create", "update", "delete"]
    assert (created["id"], created["name"], created["alive"]) == (node, N1, True)
    assert (updated["bootenv"], updated["before"]) == ("sledgehammer", {"bootenv": ""})
    assert deleted["bootenv"] == "sledgehammer"
    assert (deleted["macs"], deleted["discovery"], deleted["deployment"]) == (["02:00:00:00:00:01"], {"a": 1}, "system")
    assert "crowbar-managed-node" in deleted["roles"]


async def test_updates_of_a_node_that_wait_become_one(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Dhcp(RoleHooks):
            role = "hooked-unbound"
            def on_node_change(self, node):
                note("change", node)
        """,
    )
    await rack.node("n1")
    await rack.deployment("web")
    await change_node(rack, N1, bootenv="a")
    await change_node(rack, N1, bootenv="b", alive=False)
    await rack.do(lambda session: move_node(session, N1, "web"))
    assert await rack.rows("SELECT count(*) FROM hook_calls WHERE handler = 'hooked-unbound'") == [(1,)]
    await hooked.deliver()
    node_id = await rack.node_id("n1")
    await rack.do(lambda session: record_boot(session, node_id, "boot-1", "local"))
    await hooked.deliver()
    first, second = [view for _, view in hooked.noted()]
    assert (first["bootenv"], first["alive"], first["deployment"]) == ("b", False, "web")
    assert first["before"] == {"bootenv": "", "alive": True, "deployment": "system"}
    assert second["before"] == {"alive": False, "boot_id": None, "observed_bootenv": ""}


# What is not given up by then comes to rest by itself, and is told by the count.
COUNTED = """
def tired():
    return len(NOTES.read_text().splitlines()) > 60
"""

RESTLESS = f"""
{COUNTED}
class Unbound(RoleHooks):
    role = "hooked-unbound"
    def on_node_update(self, node):
        note("on_node_update", node)
        return None if tired() else SetNode(stay_on=not node.stay_on)
"""

PING_PONG = f"""
{COUNTED}
class Parent(RoleHooks):
    role = "hooked-parent"
    def on_node_update(self, node):
        note("parent", node)
        return SetNode(bootenv="local") if node.bootenv != "local" and not tired() else None

class Child(RoleHooks):
    role = "hooked-child"
    def on_node_update(self, node):
        note("child", node)
        return SetNode(bootenv="sledgehammer") if node.bootenv != "sledgehammer" and not tired() else None
"""

SETTLED = """
class Unbound(RoleHooks):
    role = "hooked-unbound"
    def on_node_update(self, node):
        note("on_node_update", node)
        return SetNode(stay_on=True)
"""


@pytest.mark.parametrize(("code", "most"), [(RESTLESS, 1 + MAX_RECALLS), (PING_PONG, 4 * (1 + MAX_RECALLS))])
async def test_hooks_that_keep_changing_their_node_are_given_up(hooked: Hooked, code: str, most: int) -> None:
    rack = hooked.rack
    await hooked.load(ROLES, code)
    await rack.node("n1")
    await hooked.deliver()
    hooked.notes.unlink(missing_ok=True)
    await change_node(rack, N1, description="new")
    assert await hooked.deliver() == []
    assert MAX_RECALLS < len(hooked.noted()) <= most
    given_up = await rack.do(failing_calls)
    assert given_up
    assert all(call.state == "failed" and "oscillates" in call.error for call in given_up)
    assert await hooked.waiting() == []
    [(event,)] = await rack.rows("SELECT DISTINCT data ->> 'error' FROM events WHERE kind = 'hook.failed'")
    assert "Let it return nothing when the node is as it should be" in str(event)
    calls = len(hooked.noted())
    await rack.do(lambda session: retry_call(session, given_up[0].id))  # a person starts a chain of its own
    await hooked.deliver()
    assert calls < len(hooked.noted()) <= calls + most


async def test_a_hook_that_leaves_its_node_as_it_is_is_not_called_again(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(ROLES, SETTLED)
    await rack.node("n1")
    await hooked.deliver()
    hooked.notes.unlink(missing_ok=True)
    for number in range(MAX_RECALLS + 3):
        await change_node(rack, N1, description=f"{number}")
        await hooked.deliver()
    assert len(hooked.noted()) == MAX_RECALLS + 4
    assert await rack.do(failing_calls) == []


async def test_a_changed_bootenv_reaches_every_dhcp_database_while_it_stays_active(hooked: Hooked) -> None:
    """The sequence of the seed: watch the bootenv, update the database noderoles, enqueue a run of all of them."""
    rack = hooked.rack
    await hooked.load(
        """
        - {name: dhcp-database, jig: noop}
        - {name: dhcp-user, jig: noop, requires: [dhcp-database]}
        """,
        """
        class Database(RoleHooks):
            role = "dhcp-database"
            def on_node_change(self, node):
                if "bootenv" in node.changed:
                    return [SetSysdata({"dhcp": {node.name: node.bootenv}}), Enqueue()]
            def on_node_delete(self, node):
                return [SetSysdata({"dhcp": {node.name: None}}), Enqueue()]
        """,
    )
    await make_web(rack, "n1", "n2", "n3")
    await rack.deploy("web", ("n1", "dhcp-database"), ("n2", "dhcp-database"), ("n2", "dhcp-user"))
    await rack.anneal()
    await hooked.deliver()
    await change_node(rack, "n3.rack.example", bootenv="ubuntu-install")
    assert await hooked.deliver() == []
    assert await rack.state("n1", "dhcp-database") is ACTIVE
    runs = [run for run in await rack.claim() if run.role == "dhcp-database"]
    assert {(run.node, run.role, run.refresh) for run in runs} == {
        ("n1.rack.example", "dhcp-database", True),
        ("n2.rack.example", "dhcp-database", True),
    }
    assert all(run.input["dhcp"] == {"n3.rack.example": "ubuntu-install"} for run in runs)
    await rack.finish(*runs)
    await rack.anneal()
    await rack.do(lambda session: delete_node(session, "n3.rack.example"))
    await hooked.deliver()
    assert await rack.value("n1", "dhcp-database", "dhcp") == {}


# --- networks


async def test_roles_are_told_of_networks_and_addresses_with_their_last_state(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Unbound(RoleHooks):
            role = "hooked-unbound"
            def on_network_create(self, network): note("network_create", network)
            def on_network_change(self, network): note("network_change", network)
            def on_network_delete(self, network): note("network_delete", network)
            def on_allocation_create(self, allocation): note("allocation_create", allocation)
            def on_allocation_delete(self, allocation): note("allocation_delete", allocation)
        """,
    )
    id = await rack.node("n1")
    await rack.do(lambda session: networks.create_network(session, STORAGE))
    await rack.do(lambda session: networks.update_network(session, "storage", {"vlan": 7}))
    await rack.do(lambda session: ensure_addresses(session, "storage", id))
    await rack.do(lambda session: delete_node(session, id))
    await rack.do(lambda session: networks.delete_network(session, "storage"))
    assert await hooked.deliver() == []
    noted = hooked.noted()
    changes = [(hook, view["vlan"], view["before"]) for hook, view in noted if hook.startswith("network")]
    assert changes == [
        ("network_create", None, {}),
        ("network_change", 7, {"vlan": None}),
        ("network_delete", 7, {}),
    ]
    addresses = [(hook, view["node"], view["address"]) for hook, view in noted if hook.startswith("allocation")]
    assert addresses == [("allocation_create", N1, "10.78.0.10"), ("allocation_delete", N1, "10.78.0.10")]
