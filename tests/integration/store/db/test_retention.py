"""Retention: each table that grows has a rule, and what people still need stays."""

from functools import partial

from tests.support.rack import Rack

from rackwright.server.retention import Retention, RetentionPeriods
from rackwright.store.db.retention import forget_runs, tables_without_retention
from rackwright.store.db.tables import metadata

DAY = 86400.0


def test_of_every_table_somebody_said_why_it_does_not_grow_for_ever() -> None:
    assert tables_without_retention(metadata.tables) == set()


async def run_twice(rack: Rack) -> tuple[int, int]:
    """Two runs of one noderole, both long over."""
    await rack.node("n1")
    await rack.deployment("web")
    await rack.deploy("web", ("n1", "test-parent"))
    await rack.anneal()
    noderole = await rack.at("n1", "test-parent")
    await rack.do(
        lambda session: session.run(
            "INSERT INTO runs (node_role_id, node_id, slot, jig, state, deadline, started_at, ended_at)"
            " SELECT node_role_id, node_id, slot, jig, state, deadline, started_at, ended_at FROM runs"
            " WHERE node_role_id = :id",
            id=noderole.id,
        )
    )
    await rack.do(lambda session: session.run("UPDATE runs SET ended_at = now() - interval '100 days'"))
    rows = await rack.rows("SELECT id FROM runs WHERE node_role_id = :id ORDER BY id", id=noderole.id)
    first, last = (int(str(row[0])) for row in rows)
    await rack.do(
        lambda session: session.run(
            "INSERT INTO run_logs (run_id, seq, text) VALUES (:first, 99, 'a'), (:last, 99, 'b')",
            first=first,
            last=last,
        )
    )
    return first, last


async def runs_left(rack: Rack, *ids: int) -> list[int]:
    return [int(str(row[0])) for row in await rack.rows("SELECT id FROM runs WHERE id = ANY (:ids)", ids=list(ids))]


async def test_old_runs_go_with_their_logs_and_the_last_of_a_noderole_stays(rack: Rack) -> None:
    first, last = await run_twice(rack)
    await Retention(rack.store, RetentionPeriods(runs=90 * DAY)).forget()
    assert await runs_left(rack, first, last) == [last]
    assert await rack.rows("SELECT 1 FROM run_logs WHERE run_id = :id", id=first) == []
    assert await rack.rows("SELECT text FROM run_logs WHERE run_id = :id AND seq = 99", id=last) == [("b",)]


async def test_runs_that_are_young_enough_stay(rack: Rack) -> None:
    first, last = await run_twice(rack)
    await Retention(rack.store, RetentionPeriods(runs=200 * DAY)).forget()
    assert await runs_left(rack, first, last) == [first, last]


async def test_runs_of_a_noderole_that_is_gone_go_all(rack: Rack) -> None:
    first, last = await run_twice(rack)
    await rack.do(lambda session: session.run("UPDATE runs SET node_role_id = 0 WHERE id IN (:a, :b)", a=first, b=last))
    await Retention(rack.store, RetentionPeriods(runs=90 * DAY)).forget()
    assert await runs_left(rack, first, last) == []


async def test_batches_go_on_past_runs_that_stay(rack: Rack) -> None:
    first, last = await run_twice(rack)
    after: int | None = 0
    while after is not None:
        _, after = await rack.do(partial(forget_runs, keep=90 * DAY, after=after, batch=1))
    assert first not in await runs_left(rack, first, last)


async def test_hooks_that_were_given_up_and_what_expired_go(rack: Rack) -> None:
    await rack.do(
        lambda session: session.run(
            "INSERT INTO hook_calls (kind, handler, hook, subject, subject_id, state, queued_at) VALUES"
            " ('role', 'x', 'on_active', 'noderole', 0, 'failed', now() - interval '100 days')"
        )
    )
    await rack.do(
        lambda session: session.run(
            "INSERT INTO kept_answers (owner, key, request, at) VALUES ('x', 'k', '', now() - interval '2 days')"
        )
    )
    await Retention(rack.store, RetentionPeriods()).forget()
    assert await rack.rows("SELECT 1 FROM hook_calls WHERE handler = 'x'") == []
    assert await rack.rows("SELECT 1 FROM kept_answers") == []
