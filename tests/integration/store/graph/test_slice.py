"""The shortest path through the store, from first start to everything ACTIVE."""

from rackwright.barclamps.loader import built_in
from rackwright.domain.states import ACTIVE
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import Database
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import create_deployment, get_deployment
from rackwright.store.graph.noderoles import count_by_state
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.runs.claims import Claimant, claim_runs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.store import Store


async def test_from_first_start_to_all_active(database: Database) -> None:
    store = Store(database)
    core = [barclamp for barclamp in built_in() if barclamp.name == "core"]
    await first_start(store, core, "admin.rack.example")
    await first_start(store, core, "admin.rack.example")

    async def intend(session: GraphSession) -> None:
        node = await create_node(session, NewNode("n1.rack.example", alive=True))
        await create_deployment(session, "web", None)
        deployment = await get_deployment(session, "web", EVERYTHING)
        await bind_proposed(session, deployment, [(node, "crowbar-installed-node")])
        planned = await commits.plan_proposal_commit(session, deployment)
        assert [line.role for line in planned.created] == ["crowbar-installed-node"]
        assert planned.moved == ("n1.rack.example",)
        await commits.commit_proposal(session, deployment, planned.digest)

    await store.change_graph(intend)

    async def one_pass(session: Session) -> int:
        claimed = await claim_runs(session, Claimant("test"), cap=10)
        await settle_runs(session, [FinishedRun(run.id) for run in claimed.started])
        return len(claimed.started)

    passes = 0
    while await store.change(one_pass, lock=CAP_LOCK):
        passes += 1
    async with store.read() as session:
        counts = await count_by_state(session, EVERYTHING)
    assert counts.keys() == {ACTIVE}
    assert passes == 3
