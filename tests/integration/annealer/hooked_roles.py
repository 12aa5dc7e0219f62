"""Roles for tests of hooks, with nodes to bind them to and ways to change and run them."""

from typing import Any

from tests.support.rack import Rack

from rackwright.store.machines.nodes import update_node

ROLES = """
- {name: hooked-parent, jig: noop}
- {name: hooked-child, jig: noop, requires: [hooked-parent]}
- {name: hooked-unbound, jig: noop}
"""

N1 = "n1.rack.example"


async def change_node(rack: Rack, node: str, **changes: Any) -> None:
    await rack.do(lambda session: update_node(session, node, changes))


async def make_web(rack: Rack, *nodes: str) -> None:
    """Make the deployment `web`, and these nodes, whose own roles have run."""
    for node in nodes:
        await rack.node(node)
    await rack.anneal()
    await rack.deployment("web")


async def anneal_hooked(rack: Rack) -> list[tuple[str, str]]:
    """Run all that can run; return what of it is of the roles that tests of hooks have."""
    mine = ("hooked-", "dhcp-", "os-install", "after-install")
    return [(node, role) for node, role in await rack.anneal() if role.startswith(mine)]
