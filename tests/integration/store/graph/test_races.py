"""Races on two connections: runs that settle or start, and reboots, against changes of the graph or of the run."""

import pytest
from tests.integration.store.graph.test_concurrency import Work, overtake
from tests.support.rack import Rack, unbroken

from rackwright.domain.states import ACTIVE, BLOCKED, TODO, TRANSITION
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.transitions import mark_dirty
from rackwright.store.machines.nodes import record_boot
from rackwright.store.runs.claims import Claimant, claim_runs
from rackwright.store.runs.settling import FinishedRun, settle_runs

PAIR = """
name: pair
roles:
  - {name: left, jig: noop}
  - {name: right, jig: noop}
  - {name: both, jig: noop, requires: [left, right]}
"""

FAN = """
name: fan
roles:
  - {name: hub, jig: noop}
  - {name: spoke, jig: noop, requires: [hub]}
"""


def without_error(results: tuple[object, object]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def test_parents_that_settle_while_a_proposal_leaves_them_for_nearer_ones_count_nothing_off(rack: Rack) -> None:
    """The child has one unmet parent after the commit; two former ones must not make that less than none."""
    await rack.import_text(PAIR)
    for name, parent in (("web", None), ("part", "web"), ("sub", "part")):
        await rack.deployment(name, parent)
    for number in range(1, 6):
        await rack.node(f"n{number}")
    await rack.anneal()
    await rack.deploy("web", ("n1", "left"), ("n2", "right"))
    far = await rack.claim()
    assert len(far) == 2
    await rack.bind("sub", ("n3", "both"))
    assert await rack.parents("n3", "both") == {("n1", "left"), ("n2", "right")}
    await rack.deploy("part", ("n4", "left"), ("n5", "right"))
    runs_by_role = {run.role: run for run in await rack.claim()}
    await rack.finish(runs_by_role["left"])

    async def commit(session: GraphSession) -> object:
        return await commits.commit_proposal(session, await get_deployment(session, "sub", EVERYTHING))

    finish: Work[object] = lambda session: settle_runs(session, [FinishedRun(run.id) for run in far])  # noqa: E731
    without_error(await overtake(rack, commit, finish, graph=False))
    assert await rack.parents("n3", "both") == {("n4", "left"), ("n5", "right")}
    assert await rack.state("n3", "both") is BLOCKED
    await unbroken(rack)
    await rack.finish(runs_by_role["right"])
    assert await rack.state("n3", "both") is TODO
    await unbroken(rack)


@pytest.mark.parametrize("far_first", [True, False])
async def test_a_parent_that_settles_beside_a_proposal_worked_out_again_leaves_its_count_true(
    rack: Rack, far_first: bool
) -> None:
    await rack.import_text(FAN)
    for name, parent in (("web", None), ("part", "web"), ("sub", "part")):
        await rack.deployment(name, parent)
    for number in range(1, 4):
        await rack.node(f"n{number}")
    await rack.anneal()
    await rack.deploy("web", ("n1", "hub"))
    [far] = await rack.claim()
    await rack.bind("sub", ("n2", "spoke"))
    await rack.deploy("part", ("n3", "hub"))
    plan: Work[object] = lambda session: _plan(session, "sub")  # noqa: E731
    finish: Work[object] = lambda session: settle_runs(session, [FinishedRun(far.id)])  # noqa: E731
    without_error(await overtake(rack, *((finish, plan) if far_first else (plan, finish)), graph=False))
    await unbroken(rack)
    await rack.commit("sub")
    assert await rack.state("n2", "spoke") is BLOCKED
    await unbroken(rack)


async def _plan(session: GraphSession, deployment: str) -> object:
    return await commits.plan_proposal_commit(session, await get_deployment(session, deployment, EVERYTHING))


@pytest.mark.parametrize("what", ["claim", "settle"])
async def test_children_that_start_or_end_while_their_parent_leaves_active_keep_state_and_run_together(
    rack: Rack, what: str
) -> None:
    """A hook's effect makes the parent run again: what it tells its children must be told to what they are by then."""
    await rack.import_text(FAN)
    await rack.deployment("web")
    for number in range(1, 6):
        await rack.node(f"n{number}")
    await rack.anneal()
    await rack.deploy("web", ("n1", "hub"), *((f"n{number}", "spoke") for number in range(1, 6)))
    await rack.finish(*await rack.claim())
    hub = (await rack.at("n1", "hub")).id
    first: Work[object] = lambda session: claim_runs(session, Claimant("tester"), 100)  # noqa: E731
    if what == "settle":
        runs = await rack.claim()
        first = lambda session: settle_runs(session, [FinishedRun(run.id) for run in runs])  # noqa: E731
    without_error(await overtake(rack, first, lambda session: mark_dirty(session, [hub]), graph=False))
    spokes = await rack.noderoles("WHERE r.name = 'spoke'")
    assert {spoke.state for spoke in spokes} == {TRANSITION if what == "claim" else ACTIVE}
    assert {spoke.unmet for spoke in spokes} == {1}
    assert all((spoke.run_id is not None) == (spoke.state is TRANSITION) for spoke in spokes)
    await unbroken(rack)


async def test_a_run_accepted_while_its_node_boots_keeps_its_noderole(rack: Rack) -> None:
    await rack.import_text(FAN)
    await rack.deployment("web")
    node = await rack.node("n1")
    await rack.anneal()
    await rack.deploy("web", ("n1", "hub"))
    [run] = await rack.claim()
    accept: Work[object] = lambda session: settle_runs(session, [FinishedRun(run.id, accepted=True)])  # noqa: E731
    boot: Work[object] = lambda session: record_boot(session, node, "another-boot")  # noqa: E731
    without_error(await overtake(rack, accept, boot, graph=False))
    hub = await rack.at("n1", "hub")
    assert (hub.state, hub.run_id) == (TRANSITION, run.id)
    assert await rack.rows("SELECT state FROM runs WHERE id = :id", id=run.id) == [("accepted",)]
