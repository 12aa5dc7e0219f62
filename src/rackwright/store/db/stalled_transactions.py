"""End transactions of servers that stand still: a process that is paused in the middle of one keeps its locks.

PostgreSQL itself ends idle transactions (`idle_in_transaction_session_timeout`), but it takes a transaction in the
middle of a pipeline or of a COPY for a working one, though it waits for its client. So other servers look for those.
"""

from rackwright.store.db.session import Session

STALL_SECONDS = 30.0
"""How long a transaction may wait for the next message of its client."""
COPY_SECONDS = 600.0
"""How long a COPY may last: there is no other sign of one that stands still."""

_STALLED = """
SELECT pid, pg_terminate_backend(pid) AS ended FROM pg_stat_activity a
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
  AND state = 'active' AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
  AND query_start < now() - interval '1 second' * CASE
      WHEN EXISTS (SELECT FROM pg_stat_progress_copy c WHERE c.pid = a.pid) THEN :copy ELSE :stall END
"""


async def end_stalled(session: Session, stall: float = STALL_SECONDS, copy: float = COPY_SECONDS) -> int:
    """End the transactions whose client has sent nothing for so long, and return how many there were."""
    rows = await session.rows(_STALLED, stall=stall, copy=copy)
    return sum(row.ended for row in rows)
