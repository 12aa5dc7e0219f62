"""Hooks are asked before a binding, a commit or an end, and can refuse it."""

from typing import Any

import pytest
from tests.integration.annealer.hooked_roles import N1, ROLES, change_node, make_web
from tests.support.rack import Rack, refused
from tests.support.servers.hooked_barclamps import Hooked

from rackwright.domain.errors import Rule
from rackwright.domain.states import PROPOSED
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import delete_deployment, get_deployment
from rackwright.store.graph.snapshots import discard, remove_role
from rackwright.store.machines.nodes import get_node

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
    await make_web(hooked.rack, "n1")
    before = await hooked.rack.everything()
    with refused(Rule.REFUSED, "hooked-parent", hook, "not on my watch"):
        await _bind(hooked, "hooked-child")
    assert await hooked.rack.everything() == before
    assert hooked.noted_names() == [hook]


async def test_a_hook_can_refuse_a_commit_and_nothing_changes(hooked: Hooked) -> None:
    rack = hooked.rack
    await hooked.load(ROLES, REFUSING.format(hook="on_commit", kind="NodeRoleView"))
    await make_web(rack, "n1")
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
    await make_web(rack, "n1")
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
    await make_web(rack, "n1")
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
    await make_web(rack, "n1")
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
    await make_web(rack, "n1")
    ask_hooks = hooked.judge._ask_hooks

    async def slowly(calls: Any) -> Any:
        verdicts = await ask_hooks(calls)
        if len(hooked.noted()) == 1:
            await change_node(rack, N1, bootenv="changed")
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
