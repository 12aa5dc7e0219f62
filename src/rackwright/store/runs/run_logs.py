"""The logs of runs, stored in pieces in the order they came.

A run's log has one writer at a time: the server that executes the run, or, once the run is an install, the transaction
that holds its attempt. Two at once would take the same position in it.
"""

from collections.abc import Sequence

from rackwright.store.db.session import Session

LOG_LIMIT = 10 * 1024 * 1024
"""Bytes of log that are stored of a run."""

LOG_CUT = "\n[The log is cut here: it is full, and {left} bytes and all that came later are left out.]\n"


async def append_logs(session: Session, chunks: Sequence[tuple[int, str]], *, bounded: bool = False) -> None:
    """Append output of runs, given as (run, text) in order; what is over the limit of a run is dropped, and noted once.

    `bounded`: the caller sees to the limit; to ask the database each time would cost ever more as a log grows.
    """
    if not chunks:
        return
    sizes = await _log_sizes(session, list({id for id, _ in chunks}), bounded)
    rows: list[tuple[int, int, str]] = []
    for id, text in chunks:
        if id not in sizes or sizes[id][1] >= LOG_LIMIT:
            continue  # the run is gone, or its log full
        last, size = sizes[id]
        if not bounded and size + len(text.encode()) > LOG_LIMIT:
            fitting = text.encode()[: LOG_LIMIT - size].decode(errors="ignore")
            text = fitting + LOG_CUT.format(left=len(text.encode()) - len(fitting.encode()))
        rows.append((id, last + 1, text.replace("\0", "\ufffd")))
        sizes[id] = (last + 1, size + len(text.encode()))
    if rows:
        await session.copy("run_logs", ("run_id", "seq", "text"), ("int8", "int4", "text"), rows)


async def _log_sizes(session: Session, ids: Sequence[int], bounded: bool) -> dict[int, tuple[int, int]]:
    """Return for each run that exists the number of its log's last piece, and the log's bytes (0 if `bounded`)."""
    # octet_length does not fetch the text itself, as length does.
    size = "0" if bounded else "coalesce((SELECT sum(octet_length(l.text)) FROM run_logs l WHERE l.run_id = r.id), 0)"
    rows = await session.rows(
        f"SELECT r.id, coalesce((SELECT max(l.seq) FROM run_logs l WHERE l.run_id = r.id), 0) AS last, {size} AS size"
        " FROM runs r WHERE r.id = ANY (:ids) ORDER BY r.id FOR KEY SHARE OF r",
        ids=ids,
    )
    return {row.id: (row.last, int(row.size)) for row in rows}


async def read_log(session: Session, run_id: int, after: int = 0) -> list[tuple[int, str]]:
    """Return the pieces of a run's log after the piece number `after`, each as (seq, text)."""
    rows = await session.rows(
        "SELECT seq, text FROM run_logs WHERE run_id = :id AND seq > :after ORDER BY seq", id=run_id, after=after
    )
    return [(row.seq, row.text) for row in rows]
