"""Servers whose nodes are only names: there are no machines, so all count as reached.

Whether a machine is really reached is tried with real ones in `tests/integration/jigs/test_ssh_access.py`.
"""

import asyncssh

from rackwright.api.context import Server
from rackwright.domain.runs import Run
from rackwright.jigs.ssh_access import SshAccessJig
from rackwright.reach.ssh_connections import Connections, HostKeyWatch, NotTried, Target


async def looks_up(node_id: int) -> bool:
    """Every node is up, as far as anybody can see."""
    return False


async def _target(node_id: int) -> Target:
    raise NotTried("there is no machine")


async def _tell(node_id: int, key: str) -> None:
    raise AssertionError("nobody shows a key")


async def _is_member(run: Run) -> bool:
    return False


def all_reached(server: Server) -> Server:
    """The server, for which every node is reached from now on, also by its annealer if it has one."""
    connections = Connections(asyncssh.generate_private_key("ssh-ed25519"), HostKeyWatch(_tell, _tell))
    jig = SshAccessJig(looks_up, _target, connections, _is_member)
    assert isinstance(server.jigs, dict), "one for all parts of the server"
    server.jigs["ssh-access"] = jig
    return server
