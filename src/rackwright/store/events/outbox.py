"""The outbox: what happened, written in the transaction in which it happened, and read without losing any.

Ids are drawn before commit, so a reader that trusts them skips what commits late. The order is (xid, id), and only
transactions older than every running one are shown: what a reader has passed can never grow behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.store.db.session import Session

FORGOTTEN = "events.forgotten"
"""The setting that says up to where old events were deleted."""

AUDIT = ("user.", "grant.", "token.", "session.", "login.", "permission.", "webhook.")
"""Kinds that only administrators read: who came, from where, and what they were refused."""


class CursorGone(RackwrightError):
    """The events after this cursor are no longer kept."""

    status = 410
    type = "cursor-gone"


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
        if int(xid) >= 1 << 63 or int(id) >= 1 << 63:
            raise Invalid(f"{text!r} is no event cursor that was ever given out.")
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
    place_id: int | None = None
    """The deployment it happened in: its own, or that of its node."""


@dataclass(frozen=True)
class EventFilter:
    """Which events somebody wants and may see. In the database and in memory it says the same."""

    kinds: tuple[str, ...] = ()
    """Kinds, or `node.*` for all of nodes; none: any."""
    subject_id: int | None = None
    node_id: int | None = None
    deployment_id: int | None = None
    visible: frozenset[int] | None = None
    """Only what happened in these deployments; None: everything."""
    audit: bool = False

    def matches(self, event: Event) -> bool:
        return (
            (not self.kinds or event.kind in self.kinds or event.kind.startswith(self.prefixes))
            and (self.subject_id is None or event.subject_id == self.subject_id)
            and (self.node_id is None or event.node_id == self.node_id)
            and (self.deployment_id is None or event.place_id == self.deployment_id)
            and (self.visible is None or event.place_id in self.visible)
            and (self.audit or not event.kind.startswith(AUDIT))
        )

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(kind.removesuffix("*") for kind in self.kinds if kind.endswith("*"))

    def values(self) -> dict[str, object]:
        return {
            "kinds": list(self.kinds),
            "prefixes": list(self.prefixes),
            "subject_id": self.subject_id,
            "node_id": self.node_id,
            "deployment_id": self.deployment_id,
            "visible": None if self.visible is None else sorted(self.visible),
            "hidden": [] if self.audit else list(AUDIT),
        }


EVERYTHING = EventFilter(audit=True)


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


async def read_events(
    session: Session, after: Cursor, limit: int = 1000, wanted: EventFilter = EVERYTHING
) -> list[Event]:
    """The next events after `after`, oldest first. Empty: nothing more has happened yet."""
    found = await session.rows(
        f"""
        SELECT e.xid::text AS xid, e.id, kind, subject_id, node_id, e.deployment_id, data,
               coalesce(actor, '') AS actor, coalesce(trace, '') AS trace, at,
               coalesce(e.deployment_id, n.deployment_id) AS place_id
        FROM events e LEFT JOIN nodes n ON n.id = e.node_id
        WHERE (e.xid, e.id) > (CAST(CAST(:xid AS text) AS xid8), CAST(:id AS bigint))
          AND e.xid < pg_snapshot_xmin(pg_current_snapshot()) {"" if wanted == EVERYTHING else _WANTED}
        ORDER BY e.xid, e.id LIMIT :limit
        """,
        xid=str(after.xid),
        id=after.id,
        limit=limit,
        **({} if wanted == EVERYTHING else wanted.values()),
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
            row.place_id,
        )
        for row in found
    ]


_WANTED = """
  AND (CAST(:kinds AS text[]) = '{}' OR kind = ANY (:kinds)
       OR EXISTS (SELECT FROM unnest(CAST(:prefixes AS text[])) AS prefix WHERE starts_with(kind, prefix)))
  AND NOT EXISTS (SELECT FROM unnest(CAST(:hidden AS text[])) AS prefix WHERE starts_with(kind, prefix))
  AND (CAST(:subject_id AS bigint) IS NULL OR subject_id = :subject_id)
  AND (CAST(:node_id AS bigint) IS NULL OR node_id = :node_id)
  AND (CAST(:deployment_id AS bigint) IS NULL OR coalesce(e.deployment_id, n.deployment_id) = :deployment_id)
  AND (CAST(:visible AS bigint[]) IS NULL OR coalesce(e.deployment_id, n.deployment_id) = ANY (:visible))
"""


async def newest(session: Session) -> Cursor:
    """The place up to which everything can be read now."""
    found = await session.row(
        "SELECT xid::text AS xid, id FROM events WHERE xid < pg_snapshot_xmin(pg_current_snapshot())"
        " ORDER BY events.xid DESC, id DESC LIMIT 1"
    )
    return await forgotten(session) if found is None else Cursor(int(found.xid), found.id)


async def forgotten(session: Session) -> Cursor:
    """The place up to which events were deleted for their age."""
    found: str | None = await session.value("SELECT value #>> '{}' FROM settings WHERE name = :name", name=FORGOTTEN)
    return Cursor() if found is None else Cursor.parse(found)


async def check_kept(session: Session, cursor: Cursor) -> None:
    """Refuses a cursor after which some events are gone: going on from it would skip them silently."""
    oldest = await forgotten(session)
    if cursor < oldest:
        raise CursorGone(
            f"Events after cursor {cursor} are no longer kept. Read what you follow anew, then go on with "
            f"`since=now`, or with `since={oldest}` for the oldest that are."
        )


async def forget_events(session: Session, keep_seconds: float, batch: int = 5000) -> int:
    """Delete the oldest events, at most so many; how many it were."""
    last = await session.row(
        """
        WITH oldest AS (
            SELECT xid, id, at FROM events WHERE xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY xid, id LIMIT :batch
        ), young AS (
            SELECT xid, id FROM oldest WHERE at >= now() - :keep * interval '1 second' ORDER BY xid, id LIMIT 1
        )
        SELECT xid::text AS xid, id FROM oldest
        WHERE NOT EXISTS (SELECT FROM young WHERE (young.xid, young.id) <= (oldest.xid, oldest.id))
        ORDER BY oldest.xid DESC, id DESC LIMIT 1
        """,
        batch=batch,
        keep=keep_seconds,
    )
    if last is None:
        return 0
    upto = Cursor(int(last.xid), last.id)
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name=FORGOTTEN,
        value=Jsonb(str(upto)),
    )
    return await session.run(
        "DELETE FROM events WHERE (xid, id) <= (CAST(CAST(:xid AS text) AS xid8), CAST(:id AS bigint))",
        xid=str(upto.xid),
        id=upto.id,
    )
