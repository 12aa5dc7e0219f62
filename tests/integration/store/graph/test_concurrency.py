"""Several connections at once: each race that the locks, the retries and the event cursor guard against."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from tests.support.rack import Rack, refused, unbroken
from tests.support.waiting import PATIENCE, until

from rackwright.barclamps.loader import known_kinds
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.states import ACTIVE, TODO
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import Cursor, Event, emit, read_events
from rackwright.store.graph import commits
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.snapshots import propose
from rackwright.store.graph.subgraph import lock_parents
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.store import Store

T = TypeVar("T")
S = TypeVar("S", bound=Session)
Work = Callable[[GraphSession], Awaitable[T]]


class Gate:
    """A point where a transaction stops, its work done and its locks held, until the gate is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    def behind(self, work: Callable[[S], Awaitable[T]]) -> Callable[[S], Awaitable[T]]:
        async def then_stop(session: S) -> T:
            done = await work(session)
            await self.stop()
            return done

        return then_stop

    async def stop(self) -> None:
        self.reached.set()
        await asyncio.wait_for(self.opened.wait(), PATIENCE)


async def overtake(
    rack: Rack, first: Work[object], second: Work[object], *, graph: bool = True, gate: Gate | None = None
) -> tuple[object, object]:
    """Let `second` run into `first`, which stops before its commit, or at the given gate within it.

    Returns what each returned or raised.
    """
    stop = gate or Gate()
    change = rack.store.change_graph if graph else without_graph_lock(rack.store)
    first_task = asyncio.create_task(change(first if gate else stop.behind(first)))
    await asyncio.wait_for(stop.reached.wait(), PATIENCE)
    second_task = asyncio.create_task(change(second))
    await blocked_or_done(rack, second_task)
    stop.opened.set()
    return await asyncio.wait_for(asyncio.gather(first_task, second_task, return_exceptions=True), PATIENCE)


def without_graph_lock(store: Store) -> Callable[[Work[object]], Coroutine[Any, Any, object]]:
    """Return a way to change the graph that no other code has: the locks of rows alone must keep it consistent."""

    async def change(work: Work[object]) -> object:
        return await store.change(work)  # type: ignore[arg-type]  # on purpose

    return change


async def blocked_or_done(rack: Rack, task: "asyncio.Task[Any]") -> None:
    """Wait until a session in this database waits for a lock, or the task is over."""

    async def holds() -> bool:
        return task.done() or await rack.somebody_waits_for_a_lock()

    await until(holds, "somebody waits for a lock, or is through")


# --- bind against settle

DISCOVERED = """
name: discovered
roles:
  - {name: shared, jig: noop, flags: [bootstrap]}
  - {name: discovered, jig: noop, flags: [discovery], requires: [shared]}
"""


async def a_parent_under_way(rack: Rack) -> tuple[Work[object], Work[object]]:
    """Put test-parent on n1 into TRANSITION; return how to settle it, and how to bind a child of it."""
    await rack.deployment("web")
    for node in ("n1", "n2"):
        await rack.node(node)
    await rack.anneal()
    await rack.deploy("web", ("n1", "test-parent"))
    [run] = await rack.claim()
    await rack.propose("web")
    n2 = await rack.node_id("n2")

    async def bind(session: GraphSession) -> object:
        return await bind_proposed(session, await get_deployment(session, "web", EVERYTHING), [(n2, "test-child")])

    return (lambda session: settle_runs(session, [FinishedRun(run.id)])), bind


@pytest.mark.parametrize("bind_first", [True, False])
async def test_settle_and_bind_of_a_proposed_child_lose_no_unblock(rack: Rack, bind_first: bool) -> None:
    finish, bind = await a_parent_under_way(rack)
    order = (bind, finish) if bind_first else (finish, bind)
    results = await overtake(rack, *order, graph=False)
    assert not [result for result in results if isinstance(result, BaseException)]
    await unbroken(rack)
    await rack.commit("web")
    assert await rack.states(("n1", "test-parent"), ("n2", "test-child")) == [ACTIVE, TODO]


@pytest.mark.parametrize("bind_first", [True, False])
async def test_settle_and_discovery_of_a_child_lose_no_unblock(rack: Rack, bind_first: bool) -> None:
    await rack.import_text(DISCOVERED)
    await rack.anneal()
    await rack.node("second", admin=True)
    while (runs := await rack.claim()) and not [run for run in runs if run.role == "shared"]:
        await rack.finish(*runs)
    [run] = [run for run in runs if run.role == "shared"]
    finish: Work[object] = lambda session: settle_runs(session, [FinishedRun(run.id)])  # noqa: E731
    discover: Work[object] = lambda session: create_node(session, NewNode("n1.rack.example"))  # noqa: E731
    order = (discover, finish) if bind_first else (finish, discover)
    results = await overtake(rack, *order, graph=False)
    assert not [result for result in results if isinstance(result, BaseException)]
    await unbroken(rack)
    assert await rack.states(("second", "shared"), ("n1", "discovered")) == [ACTIVE, TODO]


async def test_settle_just_before_bind_writes_its_edges_loses_no_unblock(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, bind = await a_parent_under_way(rack)
    gate = Gate()

    async def lock_then_stop(session: GraphSession, ids: Collection[int]) -> set[int]:
        active = await lock_parents(session, ids)
        await gate.stop()
        return active

    monkeypatch.setattr("rackwright.store.graph.binding.lock_parents", lock_then_stop)
    results = await overtake(rack, bind, finish, graph=False, gate=gate)
    assert not [result for result in results if isinstance(result, BaseException)]
    await unbroken(rack)
    await rack.commit("web")
    assert await rack.states(("n1", "test-parent"), ("n2", "test-child")) == [ACTIVE, TODO]


# --- two of the same at once


async def test_of_two_commits_at_once_one_is_refused(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.bind("web", ("n1", "test-grandchild"))
    digest = (await rack.plan("web")).digest

    async def commit(session: GraphSession) -> object:
        return await commits.commit_proposal(session, await get_deployment(session, "web", EVERYTHING), digest)

    first, second = await overtake(rack, commit, commit)
    assert not isinstance(first, BaseException)
    with refused(Rule.NOT_PROPOSED, "web"):
        raise_(second)
    assert await rack.rows("SELECT count(*) FROM snapshots WHERE state = 'head'") == [(2,)]
    await unbroken(rack)


async def test_two_binds_of_one_place_at_once_make_one_noderole(rack: Rack) -> None:
    await rack.deployment("web")
    node = await rack.node("n1")

    async def bind(session: GraphSession) -> object:
        return (
            await bind_proposed(session, await get_deployment(session, "web", EVERYTHING), [(node, "test-child")])
        ).bound

    first, second = await overtake(rack, bind, bind)
    assert first == second == [(await rack.at("n1", "test-child")).id]


async def test_of_two_binds_of_one_place_in_two_deployments_one_is_refused(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.deployment("other")
    node = await rack.node("n1")

    def bind(deployment: str) -> Work[object]:
        async def work(session: GraphSession) -> object:
            return await bind_proposed(
                session, await get_deployment(session, deployment, EVERYTHING), [(node, "test-child")]
            )

        return work

    _, second = await overtake(rack, bind("web"), bind("other"))
    with refused(Rule.PROPOSED_ELSEWHERE, "test-child", "n1.rack.example", "web"):
        raise_(second)


async def test_of_two_proposals_at_once_one_is_refused(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.deploy("web", ("n1", "test-milestone"))

    async def work(session: GraphSession) -> object:
        return await propose(session, await get_deployment(session, "web", EVERYTHING))

    _, second = await overtake(rack, work, work, graph=False)
    with refused(Rule.PROPOSAL_EXISTS, "web"):
        raise_(second)


async def test_one_machine_that_two_report_at_once_becomes_one_node(rack: Rack) -> None:
    def discover(name: str) -> Work[object]:
        return lambda session: create_node(session, NewNode(name, macs=["52:54:00:12:34:56"]))

    _, second = await overtake(rack, discover("n1.rack.example"), discover("n2.rack.example"))
    with refused(Rule.EXISTS, "n1.rack.example"):
        raise_(second)


def raise_(result: object) -> None:
    if isinstance(result, BaseException):
        raise result


# --- events


class Reader:
    """Reads the events by a cursor, stored as text so that it could be written to a disk."""

    def __init__(self, rack: Rack) -> None:
        self.database = rack.store.database
        self.cursor = str(Cursor())
        self.seen: list[Event] = []

    async def read(self, limit: int = 1000) -> list[str]:
        """Return the kinds of the next events. Each call acts as a new reader: it has nothing but the stored cursor."""
        async with Store(self.database).read() as session:
            events = await read_events(session, Cursor.parse(self.cursor), limit)
        if events:
            self.cursor = str(events[-1].cursor)
            self.seen += events
        return [event.kind for event in events]


async def test_event_of_a_transaction_that_stays_open_is_not_lost(rack: Rack) -> None:
    reader = Reader(rack)
    await reader.read()
    gate = Gate()
    late = asyncio.create_task(rack.store.change(gate.behind(lambda session: emit(session, "late"))))
    await asyncio.wait_for(gate.reached.wait(), PATIENCE)
    await rack.store.change(lambda session: emit(session, "early"))
    # The late one has the lower number. Whoever showed the early one now could not come back for it.
    assert await reader.read() == []
    gate.opened.set()
    await late
    assert await reader.read() == ["late", "early"]
    assert await reader.read() == []


async def test_event_of_a_transaction_that_failed_does_not_hold_others_back(rack: Rack) -> None:
    reader = Reader(rack)
    await reader.read()

    async def fail(session: Session) -> None:
        await emit(session, "never")
        raise Conflict(Rule.REFUSED, "no")

    with refused(Rule.REFUSED):
        await rack.store.change(fail)
    await rack.store.change(lambda session: emit(session, "after"))
    assert await reader.read() == ["after"]


async def test_events_of_many_writers_are_each_read_once_and_in_order(rack: Rack) -> None:
    reader = Reader(rack)
    dice = random.Random(3)  # the same order of steps in every run
    written = 0

    async def write(writer: int) -> None:
        nonlocal written
        for number in range(15):

            async def work(session: Session, number: int = number) -> None:
                for part in range(dice.randint(1, 3)):
                    await emit(session, f"{writer}-{number}-{part}")
                    await asyncio.sleep(dice.uniform(0, 0.01))

            await rack.store.change(work)
            written += 1

    writers = [asyncio.create_task(write(writer)) for writer in range(8)]
    while not all(writer.done() for writer in writers):
        await reader.read(limit=dice.randint(1, 20))
    await asyncio.gather(*writers)
    while await reader.read(limit=50):
        pass
    there = await rack.rows("SELECT xid::text, id FROM events ORDER BY events.xid, id")
    assert written == 8 * 15
    assert [(str(event.cursor.xid), event.cursor.id) for event in reader.seen] == there


# --- deadlocks


async def crossed(rack: Rack, lock: Callable[[Session, int], Awaitable[object]]) -> list[int]:
    """Have two transactions lock two nodes in opposite orders, at first surely at once. Returns their attempts."""
    nodes = [await rack.node("n1"), await rack.node("n2")]
    holding = [asyncio.Event(), asyncio.Event()]
    attempts = [0, 0]

    def locking(mine: int) -> Callable[[Session], Awaitable[None]]:
        async def work(session: Session) -> None:
            attempts[mine] += 1
            await session.run("SELECT FROM nodes WHERE id = :id FOR UPDATE", id=nodes[mine])
            holding[mine].set()
            await asyncio.wait_for(holding[1 - mine].wait(), PATIENCE)
            await lock(session, nodes[1 - mine])

        return work

    await asyncio.wait_for(asyncio.gather(*(rack.store.change(locking(mine)) for mine in (0, 1))), PATIENCE)
    return sorted(attempts)


async def test_deadlock_is_retried(rack: Rack) -> None:
    async def lock(session: Session, node: int) -> object:
        return await session.run("SELECT FROM nodes WHERE id = :id FOR UPDATE", id=node)

    assert await crossed(rack, lock) == [1, 2]


async def test_deadlock_within_a_copy_is_retried(rack: Rack) -> None:
    await rack.do(lambda session: session.run("INSERT INTO groups (category, name) VALUES ('rack', 'one')"))

    async def lock(session: Session, node: int) -> None:
        # Its foreign key locks the node.
        group = await session.value("SELECT id FROM groups")
        await session.copy("node_groups", ("node_id", "group_id"), ("int8", "int8"), [(node, group)])

    assert await crossed(rack, lock) == [1, 2]


# --- killed in the middle

MINE = """
name: mine
jigs: [{name: my-jig, kind: noop}]
roles: [{name: a, jig: my-jig}, {name: b, jig: noop, requires: [a]}]
"""


async def binding(rack: Rack) -> Work[object]:
    node = await rack.node_id("n1")

    async def work(session: GraphSession) -> object:
        return await bind_proposed(
            session, await get_deployment(session, "web", EVERYTHING), [(node, "test-grandchild")]
        )

    return work


async def committing(rack: Rack) -> Work[object]:
    await rack.bind("web", ("n1", "test-cluster-child"), ("n2", "test-cluster"), ("n1", "test-wanting"))
    await rack.set_role_data("web", "test-cluster", {"some": "data"})

    async def work(session: GraphSession) -> object:
        return await commits.commit_proposal(session, await get_deployment(session, "web", EVERYTHING))

    return work


async def importing(rack: Rack) -> Work[object]:
    return lambda session: import_barclamps(session, [parse_barclamp(MINE, "mine.yml", known_kinds())])


@pytest.mark.parametrize("prepare", [binding, committing, importing])
async def test_killed_in_the_middle_the_database_is_as_before(
    rack: Rack, prepare: Callable[[Rack], Awaitable[Work[object]]]
) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.node("n2")
    work = await prepare(rack)
    before = await rack.everything()
    statements = await killed_at(rack, work, statement=None)
    assert await rack.everything() == before
    for statement in sorted({2, statements // 4, statements // 2, statements * 3 // 4, statements - 1, statements}):
        await killed_at(rack, work, statement)
        assert await rack.everything() == before, f"killed at statement {statement} of {statements}"
    await rack.do(work)
    assert await rack.everything() != before


async def killed_at(rack: Rack, work: Work[object], statement: int | None) -> int:
    """Have the server end the connection just before a statement of `work`, or None: after the last, before COMMIT.

    Returns how many statements it came to.
    """
    count = 0
    engine = rack.store.engine.sync_engine
    pid = 0

    def kill() -> None:
        milliseconds = round(PATIENCE * 1000)
        url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT pg_terminate_backend(%s, %s)", (pid, milliseconds)).fetchone() == (True,)

    def counted(*_: object) -> None:
        nonlocal count
        count += 1
        if count == statement:
            kill()

    async def watched(session: GraphSession) -> None:
        nonlocal pid
        pid = await session.value("SELECT pg_backend_pid()")
        event.listen(engine, "before_cursor_execute", counted)
        try:
            await work(session)
        finally:
            event.remove(engine, "before_cursor_execute", counted)
        kill()

    with pytest.raises((DBAPIError, psycopg.Error)):
        await rack.do(watched)
    return count
