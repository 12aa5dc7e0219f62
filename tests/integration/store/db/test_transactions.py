"""How transactions are run: which lock they hold, and what follows their commit."""

import psycopg
import pytest
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.domain.errors import Conflict, Rule
from rackwright.store.db.locks import GRAPH_LOCK
from rackwright.store.db.session import GraphSession, Session

_HOLDS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
  AND (CAST(classid AS bigint) << 32) + CAST(objid AS bigint) = :lock
"""


async def test_only_a_change_of_the_graph_holds_the_graph_lock(rack: Rack) -> None:
    async def held(session: Session) -> tuple[bool, int]:
        return isinstance(session, GraphSession), await session.value(_HOLDS, lock=GRAPH_LOCK)

    assert await rack.store.change_graph(held) == (True, 1)
    assert await rack.store.change(held) == (False, 0)


async def test_what_follows_a_commit_sees_it(rack: Rack) -> None:
    called: list[str] = []

    async def note(session: Session) -> None:
        session.after_commit.append(lambda: called.append("committed"))
        assert not called

    await rack.store.change(note)
    assert called == ["committed"]


async def test_what_follows_a_commit_does_not_follow_a_change_that_was_undone(rack: Rack) -> None:
    called: list[str] = []

    async def fail(session: Session) -> None:
        session.after_commit.append(lambda: called.append("committed"))
        raise Conflict(Rule.REFUSED, "no")

    with pytest.raises(Conflict):
        await rack.store.change(fail)
    assert called == []


async def test_a_listener_that_cannot_listen_leaves_no_connection_behind(rack: Rack) -> None:
    async def connections() -> int:
        async with rack.store.read() as session:
            return int(
                await session.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND backend_type = 'client backend'"
                )
            )

    before = await connections()
    with pytest.raises(psycopg.Error) as failure:
        await rack.store.listen("")

    async def as_before() -> bool:
        return await connections() == before

    await until(as_before, "no connection is left")
    assert failure.traceback, "the error, which refers to what it was raised in, is still there"
