"""Ends transactions of servers that stand still: a process that is paused in the middle of one holds its locks.

PostgreSQL does that for us where a transaction is idle (`idle_in_transaction_session_timeout`), but takes one in the
middle of a pipeline or of a COPY for one that works, though it waits for its client. So the other servers look.
"""

from rackwright.store.db.session import Session

STALL_SECONDS = 30.0
"""For which a transaction may wait for the next message of its client."""
COPY_SECONDS = 600.0
"""For which a COPY may last: of one that stands still nothing else can be seen."""

_STALLED = """
SELECT pid, pg_terminate_backend(pid) AS ended FROM pg_stat_activity a
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
  AND query_start < now() - interval '1 second' * CASE
      WHEN EXISTS (SELECT FROM pg_stat_progress_copy c WHERE c.pid = a.pid) THEN :copy ELSE :stall END
"""


async def end_stalled(session: Session, stall: float = STALL_SECONDS, copy: float = COPY_SECONDS) -> int:
    """End the transactions that wait for a client which has said nothing for so long; how many there were."""
    rows = await session.rows(_STALLED, stall=stall, copy=copy)
    return sum(row.ended for row in rows)
