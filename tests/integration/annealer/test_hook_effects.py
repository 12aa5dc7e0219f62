"""What hooks return is applied as a whole and in order; a call that fails is tried again, then given up."""

import asyncio

from tests.integration.annealer.hooked_roles import N1, ROLES, anneal_hooked, make_web
from tests.support.servers.hooked_barclamps import Hooked, failing_calls
from tests.support.waiting import until

from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.hooks.hook_queue import retry_call
from rackwright.store.machines.nodes import NewNode, create_node, delete_node, get_node


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
    await make_web(rack, "n1")
    await rack.deploy("web", ("n1", "after-install"))
    assert await anneal_hooked(rack) == [("n1", "os-install")]
    await hooked.deliver()
    assert await anneal_hooked(rack) == []
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
    await make_web(rack, "n1")
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
    assert await anneal_hooked(rack) == [("n1", "hooked-child")]


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
    await make_web(rack, "n1")
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
