"""The outbox of events: each is written in the transaction of its change, and readers get every one of them.

Ids are drawn before commit, so a reader that goes by ids alone skips events that commit late. The order is (xid, id),
and only events of transactions older than every running one are shown: behind a reader no event can appear.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.store.db.session import Session

FORGOTTEN_SETTING = "events.forgotten"
"""The name of the setting with the cursor up to which old events were deleted."""

AUDIT_KINDS = ("user.", "grant.", "token.", "session.", "login.", "permission.", "webhook.")
"""Beginnings of the kinds of events that only administrators read: who logged in, from where, and what was refused."""


class CursorGone(RackwrightError):
    """The events after this cursor are no longer kept."""

    status = 410
    type = "cursor-gone"


@dataclass(frozen=True, order=True)
class Cursor:
    """A position in the stream of events: everything up to it was read."""

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
    effective_deployment_id: int | None = None
    """The deployment that the event happened in: its own, or that of its node."""


@dataclass(frozen=True)
class EventFilter:
    """Which events a reader wants and may see. `matches` in memory and `values` in SQL select the same events."""

    kinds: tuple[str, ...] = ()
    """Kinds of events, or `node.*` for all kinds of nodes; empty: any kind."""
    subject_id: int | None = None
    node_id: int | None = None
    deployment_id: int | None = None
    visible: frozenset[int] | None = None
    """Only events that happened in these deployments; None: all events."""
    audit: bool = False

    def matches(self, event: Event) -> bool:
        return (
            (not self.kinds or event.kind in self.kinds or event.kind.startswith(self.prefixes))
            and (self.subject_id is None or event.subject_id == self.subject_id)
            and (self.node_id is None or event.node_id == self.node_id)
            and (self.deployment_id is None or event.effective_deployment_id == self.deployment_id)
            and (self.visible is None or event.effective_deployment_id in self.visible)
            and (self.audit or not event.kind.startswith(AUDIT_KINDS))
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
            "hidden": [] if self.audit else list(AUDIT_KINDS),
        }


ALL_EVENTS = EventFilter(audit=True)


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
    session: Session, after: Cursor, limit: int = 1000, event_filter: EventFilter = ALL_EVENTS
) -> list[Event]:
    """Read the next events after a cursor, oldest first. Empty: nothing more has happened yet."""
    rows = await session.rows(
        f"""
        SELECT e.xid::text AS xid, e.id, kind, subject_id, node_id, e.deployment_id, data,
               coalesce(actor, '') AS actor, coalesce(trace, '') AS trace, at,
               coalesce(e.deployment_id, n.deployment_id) AS effective_deployment_id
        FROM events e LEFT JOIN nodes n ON n.id = e.node_id
        WHERE (e.xid, e.id) > (CAST(CAST(:xid AS text) AS xid8), CAST(:id AS bigint))
          AND e.xid < pg_snapshot_xmin(pg_current_snapshot()) {"" if event_filter == ALL_EVENTS else _FILTER_SQL}
        ORDER BY e.xid, e.id LIMIT :limit
        """,
        xid=str(after.xid),
        id=after.id,
        limit=limit,
        **({} if event_filter == ALL_EVENTS else event_filter.values()),
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
            row.effective_deployment_id,
        )
        for row in rows
    ]


_FILTER_SQL = """
  AND (CAST(:kinds AS text[]) = '{}' OR kind = ANY (:kinds)
       OR EXISTS (SELECT FROM unnest(CAST(:prefixes AS text[])) AS prefix WHERE starts_with(kind, prefix)))
  AND NOT EXISTS (SELECT FROM unnest(CAST(:hidden AS text[])) AS prefix WHERE starts_with(kind, prefix))
  AND (CAST(:subject_id AS bigint) IS NULL OR subject_id = :subject_id)
  AND (CAST(:node_id AS bigint) IS NULL OR node_id = :node_id)
  AND (CAST(:deployment_id AS bigint) IS NULL OR coalesce(e.deployment_id, n.deployment_id) = :deployment_id)
  AND (CAST(:visible AS bigint[]) IS NULL OR coalesce(e.deployment_id, n.deployment_id) = ANY (:visible))
"""


async def newest_cursor(session: Session) -> Cursor:
    """Return the cursor up to which everything can be read now."""
    row = await session.row(
        "SELECT xid::text AS xid, id FROM events WHERE xid < pg_snapshot_xmin(pg_current_snapshot())"
        " ORDER BY events.xid DESC, id DESC LIMIT 1"
    )
    return await forgotten_cursor(session) if row is None else Cursor(int(row.xid), row.id)


async def forgotten_cursor(session: Session) -> Cursor:
    """Return the cursor up to which events were deleted for their age."""
    text: str | None = await session.value(
        "SELECT value #>> '{}' FROM settings WHERE name = :name", name=FORGOTTEN_SETTING
    )
    return Cursor() if text is None else Cursor.parse(text)


async def check_cursor_kept(session: Session, cursor: Cursor) -> None:
    """Refuse a cursor after which some events are gone: to go on from it would skip them silently."""
    oldest = await forgotten_cursor(session)
    if cursor < oldest:
        raise CursorGone(
            f"Events after cursor {cursor} are no longer kept. Read what you follow anew, then go on with "
            f"`since=now`, or with `since={oldest}` for the oldest that are."
        )


async def forget_events(session: Session, keep_seconds: float, batch: int = 5000) -> int:
    """Delete the oldest events, at most `batch` of them, and return how many."""
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
        name=FORGOTTEN_SETTING,
        value=Jsonb(str(upto)),
    )
    return await session.run(
        "DELETE FROM events WHERE (xid, id) <= (CAST(CAST(:xid AS text) AS xid8), CAST(:id AS bigint))",
        xid=str(upto.xid),
        id=upto.id,
    )
