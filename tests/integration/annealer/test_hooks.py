"""Hooks in real worker processes, on a real PostgreSQL: who is called when, with what, and what follows from it."""

from tests.support.hooked import Hooked

from rackwright.domain.states import ACTIVE

ROLES = """
- {name: hooked-parent, jig: noop}
- {name: hooked-child, jig: noop, requires: [hooked-parent]}
"""


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
    await rack.node("n1")
    await rack.node("n2")
    await rack.anneal()
    await rack.deployment("web")
    await rack.deploy("web", ("n1", "hooked-parent"), ("n2", "hooked-child"))
    assert await rack.anneal() == [("n1", "hooked-parent")]
    assert await rack.state("n1", "hooked-parent") is ACTIVE
    assert await rack.claim() == []
    assert await hooked.deliver() == []
    [(hook, noderole)] = hooked.noted()
    assert (hook, noderole["role"], noderole["state"]) == ("on_active", "hooked-parent", int(ACTIVE))
    assert noderole["node"]["bootenv"] == ""
    assert await rack.rows("SELECT bootenv FROM nodes WHERE name = 'n1.rack.example'") == [("local",)]
    assert await rack.anneal() == [("n2", "hooked-child")]
