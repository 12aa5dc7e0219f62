"""The outbox: what happened, written in the transaction in which it happened, and read without losing any.

Ids are drawn before commit, so a reader that trusts them skips what commits late. The order is (xid, id), and only
transactions older than every running one are shown: what a reader has passed can never grow behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid
from rackwright.store.session import Session


@dataclass(frozen=True, order=True)
class Cursor:
    """A place in the stream: everything up to it was read."""

    xid: int = 0
    id: int = 0

    def __str__(self) -> str:
        return f"{self.xid}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        xid, dash, id = text.partition("-")
        if not (dash and xid.isdecimal() and id.isdecimal() and len(text) <= 40):
            raise Invalid(
                f"{text[:40]!r} is no event cursor; take the one that came with the last event, or leave it out."
            )
        return cls(int(xid), int(id))


@dataclass(frozen=True)
class Event:
    cursor: Cursor
    kind: str
    subject_id: int | None
    node_id: int | None
    deployment_id: int | None
    data: Json
    actor: str
    trace: str
    at: datetime


async def emit(
    session: Session,
    kind: str,
    subject_id: int | None = None,
    *,
    node_id: int | None = None,
    deployment_id: int | None = None,
    data: Mapping[str, Json] | None = None,
) -> None:
    """Write one event into the outbox of this transaction."""
    await session.run(
        "INSERT INTO events (kind, subject_id, node_id, deployment_id, data)"
        " VALUES (:kind, :subject_id, :node_id, :deployment_id, :data)",
        kind=kind,
        subject_id=subject_id,
        node_id=node_id,
        deployment_id=deployment_id,
        data=None if data is None else Jsonb(dict(data)),
    )


async def read_events(session: Session, after: Cursor, limit: int = 1000) -> list[Event]:
    """The next events after `after`, oldest first. Empty: nothing more has happened yet."""
    found = await session.rows(
        """
        SELECT xid::text AS xid, id, kind, subject_id, node_id, deployment_id, data,
               coalesce(actor, '') AS actor, coalesce(trace, '') AS trace, at
        FROM events
        WHERE (xid, id) > (CAST(CAST(:xid AS text) AS xid8), CAST(:id AS bigint))
          AND xid < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY events.xid, id LIMIT :limit
        """,
        xid=str(after.xid),
        id=after.id,
        limit=limit,
    )
    return [
        Event(
            Cursor(int(row.xid), row.id),
            row.kind,
            row.subject_id,
            row.node_id,
            row.deployment_id,
            row.data,
            row.actor,
            row.trace,
            row.at,
        )
        for row in found
    ]
