"""Hooks in real worker processes, on a real PostgreSQL: which is called when, with what, and what its effects do."""

import asyncio
from typing import Any

import pytest
from tests.support.networks import STORAGE
from tests.support.rack import Rack, refused
from tests.support.servers.hooked_barclamps import Hooked, failing_calls
from tests.support.waiting import until

from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.domain.errors import Rule
from rackwright.domain.states import ACTIVE, BLOCKED, PROPOSED, TODO, TRANSITION, NodeRoleState
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import delete_deployment, get_deployment
from rackwright.store.graph.snapshots import discard, remove_role
from rackwright.store.hooks.hook_calls import MAX_RECALLS
from rackwright.store.hooks.hook_queue import retry_call
from rackwright.store.machines.nodes import (
    NewNode,
    create_node,
    delete_node,
    get_node,
    move_node,
    record_boot,
    update_node,
)
from rackwright.store.networks import networks
from rackwright.store.networks.allocations import ensure_addresses

ROLES = """
- {name: hooked-parent, jig: noop}
- {name: hooked-child, jig: noop, requires: [hooked-parent]}
- {name: hooked-unbound, jig: noop}
"""

N1 = "n1.rack.example"


async def _update(rack: Rack, node: str, **changes: Any) -> None:
    await rack.do(lambda session: update_node(session, node, changes))


async def _ready(rack: Rack, *nodes: str) -> None:
    for node in nodes:
        await rack.node(node)
    await rack.anneal()
    await rack.deployment("web")


async def _anneal(rack: Rack) -> list[tuple[str, str]]:
    """Run all that can run; what of it is of this file's roles."""
    mine = ("hooked-", "dhcp-", "os-install", "after-install")
    return [(node, role) for node, role in await rack.anneal() if role.startswith(mine)]


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
    await _ready(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "hooked-parent"), ("n2", "hooked-child"))
    assert await _anneal(rack) == [("n1", "hooked-parent")]
    assert await rack.state("n1", "hooked-parent") is ACTIVE
    assert await rack.state("n2", "hooked-child") is TODO
    assert await hooked.deliver() == []
    [(hook, noderole)] = hooked.noted()
    assert (hook, noderole["role"], noderole["state"]) == ("on_active", "hooked-parent", int(ACTIVE))
    assert noderole["node"]["bootenv"] == ""
    assert await rack.rows("SELECT bootenv FROM nodes WHERE name = :name", name=N1) == [("local",)]
    assert await _anneal(rack) == [("n2", "hooked-child")]


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
    await _ready(rack, "n1", "n2")
    await rack.deploy("web", ("n1", "hooked-unbound"))
    await rack.propose("web")
    await rack.bind("web", ("n1", "hooked-parent"))
    await rack.deployment("other")
    await rack.deploy("other", ("n2", "hooked-unbound"))
    assert await _anneal(rack) == [("n2", "hooked-unbound")]
    await hooked.deliver()
    assert await _anneal(rack) == [("n1", "hooked-unbound")]


async def test_each_transition_is_told_in_order_and_as_it_was(hooked: Hooked) -> None:
    rack = hooked.rack
    names = [f"on_{state.label}" for state in NodeRoleState]
    methods = "".join(f"\n    def {name}(self, noderole):\n        note({name!r}, noderole)\n" for name in names)
    await hooked.load(ROLES, f"\nclass Child(RoleHooks):\n    role = 'hooked-child'\n{methods}")
    await _ready(rack, "n1")
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
    await _ready(hooked.rack, "n1")
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
    await _update(rack, "n1.rack.example", bootenv="sledgehammer")
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
    await _update(rack, N1, bootenv="a")
    await _update(rack, N1, bootenv="b", alive=False)
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
    await _update(rack, N1, description="new")
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
        await _update(rack, N1, description=f"{number}")
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
    await _ready(rack, "n1", "n2", "n3")
    await rack.deploy("web", ("n1", "dhcp-database"), ("n2", "dhcp-database"), ("n2", "dhcp-user"))
    await rack.anneal()
    await hooked.deliver()
    await _update(rack, "n3.rack.example", bootenv="ubuntu-install")
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


# --- effects


async def test_an_install_marks_the_node_not_alive_before_anything_else_starts_on_it(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        """
        - {name: os-install, jig: noop}
        - {name: after-install, jig: noop, requires: [os-install]}
        """,
        """
        class Install(RoleHooks):
            role = "os-install"
            def on_active(self, noderole):
                return SetNode(bootenv="ubuntu-install", alive=False)
        """,
    )
    await _ready(rack, "n1")
    await rack.deploy("web", ("n1", "after-install"))
    assert await _anneal(rack) == [("n1", "os-install")]
    await hooked.deliver()
    assert await _anneal(rack) == []
    async with rack.store.read() as session:
        node = await get_node(session, N1, EVERYTHING)
    assert (node.alive, node.bootenv) == (False, "ubuntu-install")


async def test_all_effects_of_a_call_are_applied_or_none(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Parent(RoleHooks):
            role = "hooked-parent"
            def on_active(self, noderole):
                note("on_active", noderole)
                return [SetNode(bootenv="half"), SetNodeAttribute("no-such-attrib", 1)]
        """,
    )
    await _ready(rack, "n1")
    await rack.deploy("web", ("n1", "hooked-child"))
    await rack.anneal()
    async with hooked.running():
        await until(lambda: _given_up(hooked), "the call is given up")
    assert hooked.noted_names() == ["on_active"] * 3
    async with rack.store.read() as session:
        assert (await get_node(session, N1, EVERYTHING)).bootenv == ""
        [call] = await failing_calls(session)
    assert (call.handler, call.hook, call.state, call.attempts) == ("hooked-parent", "on_active", "failed", 3)
    assert "no-such-attrib" in call.error
    assert call.name == f"hooked-parent on {N1}"
    assert await _anneal(rack) == [("n1", "hooked-child")]


async def _given_up(hooked: Hooked) -> bool:
    return bool(await hooked.rack.rows("SELECT 1 FROM hook_calls WHERE state = 'failed'"))


async def test_what_was_given_up_can_be_tried_again_and_is_forgotten_when_it_works(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Parent(RoleHooks):
            role = "hooked-parent"
            def on_active(self, noderole):
                if not NOTES.with_name("mended").exists():
                    print("looking for it")
                    raise LookupError("not mended yet")
                note("on_active", noderole)
        """,
    )
    await _ready(rack, "n1")
    await rack.deploy("web", ("n1", "hooked-parent"))
    await rack.anneal()
    async with hooked.running():
        await until(lambda: _given_up(hooked), "the call is given up")
        async with rack.store.read() as session:
            [call] = await failing_calls(session)
        assert "LookupError: not mended yet" in call.error
        assert "in on_active" in call.error
        assert "looking for it" in call.error
        hooked.notes.with_name("mended").touch()
        await rack.do(lambda session: retry_call(session, call.id))
        await until(lambda: _no_failing(hooked), "the call is no longer shown as failing")
    assert hooked.noted_names() == ["on_active"]


async def _no_failing(hooked: Hooked) -> bool:
    async with hooked.rack.store.read() as session:
        return not await failing_calls(session)


NONSENSE = {
    "return 'x' * 3_000_000": "not str",
    "return [Log('x' * 3_000_000)]": "more than 1048576 bytes",
    "return [SetNode(alive='yes')]": "SetNode.alive cannot be 'yes'",
    "return [object()]": "object is none",
    "os._exit(3)": "its process died",
    "raise SystemExit(3)": "exit(3)",
    "return SetSysdata({'a': {1, 2}})": "not JSON serializable",
    "return SetSysdata({'a': float('nan')})": "not JSON compliant",
    "return (Log('x') for _ in range(10**9))": "more than 1000 effects",
}


async def test_a_hook_that_returns_nonsense_has_failed_and_says_why(hooked: Hooked) -> None:
    classes = [
        f"class C{n}(RoleHooks):\n    role = 'bad-{n}'\n    def on_node_create(self, node):\n        {body}\n"
        for n, body in enumerate(NONSENSE)
    ]
    await hooked.load("".join(f"- {{name: bad-{n}, jig: noop}}\n" for n in range(len(NONSENSE))), "\n".join(classes))
    await hooked.rack.node("n1")
    await hooked.deliver()
    async with hooked.rack.store.read() as session:
        failing = {call.handler: call.error for call in await failing_calls(session)}
    for n, reason in enumerate(NONSENSE.values()):
        assert reason in failing[f"bad-{n}"]


async def test_code_that_was_imported_anew_is_called_from_then_on(hooked: Hooked) -> None:
    code = """
        class Unbound(RoleHooks):
            role = "hooked-unbound"
            def on_node_create(self, node):
                note("{}", node)
    """
    await hooked.load(ROLES, code.format("old"))
    await hooked.rack.node("n1")
    await hooked.deliver()
    await hooked.load(ROLES, code.format("new"))
    await hooked.rack.node("n2")
    await hooked.deliver()
    assert hooked.noted_names() == ["old", "new"]


async def test_two_servers_share_the_queue_and_keep_the_order_of_each_node(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Unbound(RoleHooks):
            role = "hooked-unbound"
            def on_node_create(self, node):
                note(node.name + " create", node)
            def on_node_delete(self, node):
                note(node.name + " delete", node)
        """,
    )
    for number in range(10):
        await rack.do(lambda session, name=f"m{number}.rack.example": create_node(session, NewNode(name)))  # type: ignore[misc]
        await rack.do(lambda session, name=f"m{number}.rack.example": delete_node(session, name))  # type: ignore[misc]
    other = HookDispatcher(rack.store, hooked.workers, hooked.files, {}, "other", HookPace(at_once=2))
    await asyncio.gather(hooked.dispatcher.deliver_all(), other.deliver_all())
    await asyncio.gather(hooked.dispatcher.deliver_all(), other.deliver_all())
    told = hooked.noted_names()
    assert len(told) == len(set(told)) == 20
    for number in range(10):
        name = f"m{number}.rack.example"
        assert told.index(f"{name} create") < told.index(f"{name} delete")


# --- what may refuse


REFUSING = """
class Parent(RoleHooks):
    role = "hooked-parent"
    def {hook}(self, thing):
        assert isinstance(thing, {kind}), type(thing)
        note("{hook}", thing)
        return Refuse("not on my watch")
"""


async def _bind(hooked: Hooked, role: str) -> None:
    async def work(session: GraphSession) -> None:
        node = await get_node(session, N1, EVERYTHING)
        await bind_proposed(session, await get_deployment(session, "web", EVERYTHING), [(node.id, role)])

    await hooked.judge.change_graph(work, actor="tester")


@pytest.mark.parametrize(
    ("hook", "kind"), [("on_deployment_create", "DeploymentView"), ("on_node_bind", "NodeRoleView")]
)
async def test_a_hook_can_refuse_a_binding_and_nothing_changes(hooked: Hooked, hook: str, kind: str) -> None:
    await hooked.load(ROLES, REFUSING.format(hook=hook, kind=kind))
    await _ready(hooked.rack, "n1")
    before = await hooked.rack.everything()
    with refused(Rule.REFUSED, "hooked-parent", hook, "not on my watch"):
        await _bind(hooked, "hooked-child")
    assert await hooked.rack.everything() == before
    assert hooked.noted_names() == [hook]


async def test_a_hook_can_refuse_a_commit_and_nothing_changes(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(ROLES, REFUSING.format(hook="on_commit", kind="NodeRoleView"))
    await _ready(rack, "n1")
    await _bind(hooked, "hooked-child")
    before = await rack.everything()

    async def commit(session: GraphSession) -> None:
        await commits.commit_proposal(session, await get_deployment(session, "web", EVERYTHING))

    with refused(Rule.REFUSED, "hooked-parent", "on_commit"):
        await hooked.judge.change_graph(commit)
    assert await rack.everything() == before
    [(_, noderole)] = hooked.noted()
    assert (noderole["role"], noderole["node"]["name"], noderole["id"] > 0) == ("hooked-parent", N1, True)


async def test_a_hook_can_refuse_the_end_of_its_deployment(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(ROLES, REFUSING.format(hook="on_deployment_delete", kind="DeploymentView"))
    await _ready(rack, "n1")
    await _bind(hooked, "hooked-child")
    before = await rack.everything()
    with refused(Rule.REFUSED, "hooked-parent"):
        await hooked.judge.change_graph(lambda session: delete_deployment(session, "web"))
    with refused(Rule.REFUSED, "hooked-parent"):
        await hooked.judge.change_graph(Rack._on("web", discard))
    assert await rack.everything() == before


async def test_a_hook_is_asked_before_its_role_leaves_the_deployment_and_can_refuse(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(ROLES, REFUSING.format(hook="on_deployment_delete", kind="DeploymentView"))
    await _ready(rack, "n1")
    await _bind(hooked, "hooked-child")
    await rack.commit("web")
    await rack.propose("web")
    await hooked.judge.change_graph(Rack._on("web", lambda session, web: remove_role(session, web, "hooked-parent")))
    before = await rack.everything()
    assert hooked.noted() == [], "it does not go yet"
    with refused(Rule.REFUSED, "hooked-parent", "on_deployment_delete"):
        await hooked.judge.change_graph(Rack._on("web", commits.commit_proposal))
    assert await rack.everything() == before
    [(_, deployment)] = hooked.noted()
    assert deployment["name"] == "web"


async def test_what_on_deployment_create_sets_are_defaults(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(
        "- {name: hooked-parent, jig: noop, template: {port: 80}}",
        """
        class Parent(RoleHooks):
            role = "hooked-parent"
            def on_deployment_create(self, deployment):
                note("create", deployment)
                return SetDeploymentRoleData({"port": deployment.data["port"] + 1, "name": deployment.name})
            def on_node_bind(self, noderole):
                return SetSysdata({"bound": noderole.id})
        """,
    )
    await _ready(rack, "n1")
    await _bind(hooked, "hooked-parent")
    assert await rack.value("n1", "hooked-parent", "port") == 81
    assert await rack.value("n1", "hooked-parent", "name") == "web"
    assert await rack.value("n1", "hooked-parent", "bound") == 0
    await rack.set_role_data("web", "hooked-parent", {"port": 8080})
    await rack.commit("web")
    assert await rack.value("n1", "hooked-parent", "port") == 8080
    assert hooked.noted_names() == ["create"]


async def test_a_verdict_holds_only_for_what_the_hook_was_shown(hooked: Hooked) -> None:
    """The node changes between the verdict and the transaction: the hook is asked again."""
    rack = hooked.rack
    await hooked.load(
        ROLES,
        """
        class Parent(RoleHooks):
            role = "hooked-parent"
            def on_node_bind(self, noderole):
                note(noderole.node.bootenv, noderole)
        """,
    )
    await _ready(rack, "n1")
    ask_hooks = hooked.judge._ask_hooks

    async def slowly(calls: Any) -> Any:
        verdicts = await ask_hooks(calls)
        if len(hooked.noted()) == 1:
            await _update(rack, N1, bootenv="changed")
        return verdicts

    hooked.judge._ask_hooks = slowly  # type: ignore[method-assign]  # the only place where something can come between
    await _bind(hooked, "hooked-parent")
    assert hooked.noted_names() == ["", "changed"]
    assert await rack.state("n1", "hooked-parent") is PROPOSED


async def test_where_nobody_can_be_refused_hooks_are_told_afterwards(hooked: Hooked) -> None:
    await hooked.load(
        "- {name: hooked-found, jig: noop, flags: [discovery]}",
        """
        class Found(RoleHooks):
            role = "hooked-found"
            def on_deployment_create(self, deployment):
                note("on_deployment_create", deployment)
            def on_node_bind(self, noderole):
                note("on_node_bind", noderole)
            def on_commit(self, noderole):
                note("on_commit", noderole)
        """,
    )
    await hooked.rack.node("n1")
    assert hooked.noted() == []
    assert await hooked.deliver() == []
    assert sorted(hooked.noted_names()) == ["on_commit", "on_deployment_create", "on_node_bind"]


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
