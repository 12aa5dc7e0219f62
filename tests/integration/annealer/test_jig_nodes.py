"""Jigs are told of nodes: of each that comes, changes or goes, and of all when they become active."""

from pathlib import Path

from tests.support.rack import Rack
from tests.support.servers.hooked_barclamps import Hooked, failing_calls

from rackwright.annealer.hooks import HookPace
from rackwright.domain.catalogue import Barclamp, Jig
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs import base
from rackwright.jigs.base import JigNode
from rackwright.reach.run_log import Log
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.hooks.hook_queue import set_jig_active
from rackwright.store.machines.nodes import delete_node, update_node


class Listener(base.Jig):
    """A jig that records the nodes it was told of."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str | None]] = []

    async def node_create(self, node: JigNode) -> None:
        self.calls.append(("create", node.name, node.address))

    async def node_update(self, node: JigNode) -> None:
        self.calls.append(("update", node.name, node.address))

    async def node_delete(self, node: JigNode) -> None:
        self.calls.append(("delete", node.name, node.address))

    async def run(self, run: Run, log: Log) -> Outcome:
        raise NotImplementedError


JIGS = Barclamp(
    "listening",
    jigs=(Jig("active-one", "listening", "listener"), Jig("idle-one", "listening", "idle", active=False)),
)

N1, ADMIN = "n1.rack.example", "admin.rack.example"


async def test_an_active_jig_hears_of_every_node_and_one_that_becomes_active_of_all(rack: Rack, tmp_path: Path) -> None:
    listener, idle = Listener(), Listener()
    hooked = Hooked(rack, tmp_path, HookPace(), {"listener": listener, "idle": idle})
    await rack.do(lambda session: import_barclamps(session, [JIGS]))
    await hooked.deliver()
    assert listener.calls == [("create", ADMIN, None)]
    await rack.node("n1")
    await hooked.deliver()
    await rack.do(lambda session: update_node(session, N1, {"discovery": {"address": "10.0.0.1"}}))
    await rack.do(lambda session: update_node(session, N1, {"bootenv": "local"}))
    await hooked.deliver()
    assert listener.calls[1:] == [("create", N1, None), ("update", N1, "10.0.0.1")]
    assert idle.calls == []
    assert await rack.do(lambda session: set_jig_active(session, "idle-one", True))
    await hooked.deliver()
    assert sorted(idle.calls) == [("create", ADMIN, None), ("create", N1, "10.0.0.1")]
    await rack.do(lambda session: delete_node(session, N1))
    await hooked.deliver()
    assert listener.calls[-1] == idle.calls[-1] == ("delete", N1, "10.0.0.1")
    assert not await rack.do(lambda session: set_jig_active(session, "idle-one", True))
    async with rack.store.read() as session:
        assert await failing_calls(session) == []
