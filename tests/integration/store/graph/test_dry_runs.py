"""A dry run of binding: it reads, takes no lock, and tells for each target what the bind itself would do."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest
from tests.support.rack import ADMIN, Rack
from tests.support.waiting import PATIENCE

from rackwright.domain.errors import Conflict, NotFound, RackwrightError, Rule
from rackwright.domain.graph.binding import BindPlan
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.binding import BindRequest, bind_proposed, plan_binding, plan_each_binding
from rackwright.store.graph.deployments import get_deployment

TargetResult = str | tuple[list[bool], list[tuple[int, str, int]]]
"""Why a target is refused, or which of its noderoles are new and what would be made: node, role, cohort."""


class TakenBackError(Exception):
    """Raised to undo a transaction."""


async def _fill(rack: Rack) -> None:
    """Fill web, with every kind of neighbour on its nodes, some committed and some proposed."""
    await rack.deployment("web")
    await rack.deployment("mail")
    for node in ("n1", "n2", "n3", "n4"):
        await rack.node(node)
    await rack.node("theirs", deployment="mail")
    await rack.deploy("web", ("n1", "test-cluster"), ("n1", "test-cluster-child"), ("n2", "test-parent"))
    await rack.anneal()
    await rack.bind("mail", ("n4", "test-child"))
    await rack.propose("web")
    await rack.bind("web", ("n2", "test-conflict-silent"), ("n3", "test-provider"), ("n3", "test-concrete"))


def _target_result(answer: BindPlan | RackwrightError, present: set[int]) -> TargetResult:
    if isinstance(answer, RackwrightError):
        return f"{answer.type}: {answer.message}"
    created = [(noderole.node_id, noderole.role, noderole.cohort) for noderole in answer.created]
    return [id not in present for id in answer.bound], created


async def _bind_and_undo(rack: Rack, target: Sequence[BindRequest], present: set[int]) -> TargetResult:
    """Return the result of the bind itself, which is undone."""
    verdicts: list[TargetResult] = []

    async def work(session: GraphSession) -> None:
        try:
            plan = await bind_proposed(session, await get_deployment(session, "web", EVERYTHING), target)
        except (Conflict, NotFound) as refused:
            verdicts.append(_target_result(refused, present))
        else:
            verdicts.append(_target_result(plan, present))
        raise TakenBackError

    with pytest.raises(TakenBackError):
        await rack.do(work)
    return verdicts[0]


async def test_a_dry_run_of_many_targets_says_of_each_what_binding_it_does(rack: Rack) -> None:
    await _fill(rack)
    async with rack.store.read() as session:
        stored = await session.catalogue()
        rows = await session.rows("SELECT id, name FROM nodes ORDER BY id")
        present = {row.id for row in await session.rows("SELECT id FROM node_roles")}
    named = {row.name.partition(".")[0]: row.id for row in rows}
    roles = [*stored.catalogue.roles, "no-such-role"]
    requests = [(id, role) for id in named.values() for role in roles]
    pairs = [[(named["n1"], role), (named["n2"], role)] for role in roles]
    targets: list[list[BindRequest]] = [*([request] for request in requests), *pairs]
    before = await rack.everything()
    async with rack.store.read() as session:
        answers, _ = await plan_each_binding(session, await get_deployment(session, "web", EVERYTHING), targets)
    assert await rack.everything() == before
    verdicts = {tuple(target): _target_result(answer, present) for target, answer in zip(targets, answers, strict=True)}
    kinds = {answer.type for answer in answers if isinstance(answer, RackwrightError)}
    assert len(kinds) > 8
    assert len([answer for answer in answers if isinstance(answer, BindPlan)]) > 100
    # The real thing is slow: every kind of refusal, and the nodes with neighbours.
    for target in targets:
        if target[0][0] in (named["n2"], named["n3"], named["theirs"], named["admin"]) or len(target) > 1:
            assert verdicts[tuple(target)] == await _bind_and_undo(rack, target, present), target


async def test_a_dry_run_waits_for_nobody_and_changes_nothing(rack: Rack) -> None:
    await _fill(rack)
    node = await rack.node_id("n1")
    admin = await rack.node_id(ADMIN)
    held, over = asyncio.Event(), asyncio.Event()

    async def hold(session: Session) -> None:
        """As a commit: the graph, the deployment, its proposal and what is bound."""
        for table in ("deployments", "snapshots", "nodes", "node_roles"):
            await session.run(f"SELECT FROM {table} FOR UPDATE")
        held.set()
        await over.wait()

    before = await rack.everything()
    holding = asyncio.create_task(rack.do(hold))
    try:
        await asyncio.wait_for(held.wait(), PATIENCE)

        async def dry_run() -> tuple[BindPlan, list[BindPlan | RackwrightError]]:
            async with rack.store.read() as session:
                home = await get_deployment(session, "web", EVERYTHING)
                plan = await plan_binding(session, home, [(node, "test-grandchild")])
                plans, _ = await plan_each_binding(
                    session, home, [[(node, "test-grandchild")], [(admin, "test-unresolved")]]
                )
                return plan, plans

        alone, [first, second] = await asyncio.wait_for(dry_run(), PATIENCE)
    finally:
        over.set()
        await holding
    assert first == alone
    assert isinstance(second, Conflict)
    assert second.rule is Rule.UNRESOLVED
    assert await rack.everything() == before


async def test_what_is_asked_of_the_database_does_not_grow_with_the_targets(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rack.deployment("web")
    for number in range(40):
        await rack.node(f"n{number}")
    statements: list[object] = []
    execute = psycopg.AsyncConnection.execute

    async def counted(self: object, query: object, *args: object, **more: object) -> object:
        statements.append(query)
        return await execute(self, query, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
    counts = []
    for number in (2, 40):
        async with rack.store.read() as session:
            await session.catalogue()
            ids = [row.id for row in await session.rows("SELECT id FROM nodes ORDER BY id DESC LIMIT :n", n=number)]
            home = await get_deployment(session, "web", EVERYTHING)
            statements.clear()
            plans, _ = await plan_each_binding(session, home, [[(id, "test-grandchild")] for id in ids])
            counts.append(len(statements))
        assert len(plans) == number
    assert counts[0] == counts[1] < 10


async def test_without_an_open_proposal_a_dry_run_is_refused_as_the_bind_is(rack: Rack) -> None:
    await rack.deployment("web")
    node = await rack.node("n1")
    await rack.discard("web")
    for name, rule in (("web", Rule.NOT_PROPOSED), ("system", Rule.SYSTEM)):

        async def really(session: GraphSession, name: str = name) -> None:
            await bind_proposed(session, await get_deployment(session, name, EVERYTHING), [(node, "test-child")])

        with pytest.raises(Conflict) as real:
            await rack.do(really)
        async with rack.store.read() as session:
            home = await get_deployment(session, name, EVERYTHING)
            with pytest.raises(Conflict) as single:
                await plan_binding(session, home, [(node, "test-child")])
            with pytest.raises(Conflict) as each:
                await plan_each_binding(session, home, [[(node, "test-child")]])
        assert real.value.rule is rule
        assert real.value.args == single.value.args == each.value.args
