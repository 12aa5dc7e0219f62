"""Webhooks: each a cursor in the outbox, moved on by whoever delivers, one event after the other.

One server at a time serves a hook, under a lease. An event is delivered at least once: a server that dies between the
call and its record leaves it to be delivered again, with the same id.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Row

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.names import check_name
from rackwright.store.db.listing import Column, Filter, Listing, key_id
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import Cursor, Event, EventFilter, emit, forgotten, newest, read_events

GIVE_UP = 15
"""Failures of one event after which the hook is stopped: with the back-off, more than half a day."""
LONGEST_WAIT = 3600
LEASE = 60
KEPT = 200
"""Deliveries remembered a hook."""


@dataclass(frozen=True)
class WebhookRecord:
    id: int
    name: str
    url: str
    kinds: tuple[str, ...]
    state: str
    cursor: Cursor
    failures: int
    error: str
    not_before: datetime | None
    created_at: datetime


@dataclass(frozen=True)
class Work:
    """A hook that this worker holds, with what opens its door."""

    hook: WebhookRecord
    secret: str


@dataclass(frozen=True)
class Delivery:
    """How one call went."""

    kind: str
    cursor: Cursor
    attempt: int
    status: int | None
    error: str
    milliseconds: int
    at: datetime | None = None
    id: int = 0

    @property
    def ok(self) -> bool:
        return not self.error


async def create_webhook(
    session: Session, name: str, url: str, kinds: tuple[str, ...], secret: str | None
) -> tuple[int, str]:
    """Its id and its secret, from now on."""
    check_name("webhook", name)
    if await session.value("SELECT 1 FROM webhooks WHERE name = :name", name=name):
        raise Conflict(Rule.EXISTS, f"There is a webhook {name!r} already. Choose another name.")
    secret = secret or secrets.token_urlsafe(32)
    start = await newest(session)
    id: int = await session.value(
        "INSERT INTO webhooks (name, url, secret, kinds, xid, event_id) VALUES"
        " (:name, :url, :secret, :kinds, CAST(CAST(:xid AS text) AS xid8), :event_id) RETURNING id",
        name=name,
        url=url,
        secret=Jsonb(session.store.vault.seal(secret)),
        kinds=list(kinds),
        xid=str(start.xid),
        event_id=start.id,
    )
    await emit(session, "webhook.created", id, data={"name": name})
    return id, secret


WEBHOOKS = Listing(
    "webhooks",
    {
        "id": Column("id", Filter.NUMBER, sort="bigint"),
        "name": Column("name", sort="text"),
        "state": Column("state", Filter.CHOICE, choices={"active": "active", "stopped": "stopped"}, sort="text"),
        "created_at": Column("created_at", Filter.TIME, sort="timestamptz"),
    },
    default="name",
    id="id",
)

DELIVERIES = Listing(
    "deliveries",
    {
        "id": Column("id", Filter.NUMBER, sort="bigint"),
        "kind": Column("kind"),
        "at": Column("at", Filter.TIME, sort="timestamptz"),
    },
    default="-id",
    id="id",
)


async def select_webhooks(session: Session, where: str, **values: object) -> list[WebhookRecord]:
    return [_record(row) for row in await session.rows(f"{_SELECT} {where}", **values)]


async def get_webhook(session: Session, name_or_id: str | int) -> WebhookRecord:
    found = await select_webhooks(
        session, "WHERE name = :name OR id = :id", name=str(name_or_id), id=key_id(name_or_id)
    )
    if not found:
        raise NotFound("webhook", name_or_id)
    return found[0]


async def open_secret(session: Session, hook_id: int) -> str:
    sealed = await session.value("SELECT secret FROM webhooks WHERE id = :id", id=hook_id)
    return str(session.store.vault.open(sealed))


async def delete_webhook(session: Session, hook: WebhookRecord) -> None:
    await session.run("DELETE FROM webhooks WHERE id = :id", id=hook.id)
    await emit(session, "webhook.deleted", hook.id, data={"name": hook.name})


async def resume_webhook(session: Session, hook: WebhookRecord) -> None:
    """Go on where it was stopped, now."""
    await session.run(
        "UPDATE webhooks SET state = 'active', failures = 0, not_before = NULL WHERE id = :id", id=hook.id
    )
    await emit(session, "webhook.resumed", hook.id, data={"name": hook.name})


async def select_deliveries(session: Session, where: str, **values: object) -> list[Delivery]:
    rows = await session.rows(
        "SELECT id, kind, xid::text AS xid, event_id, attempt, status, error, milliseconds, at"
        f" FROM webhook_deliveries {where}",
        **values,
    )
    return [
        Delivery(
            row.kind,
            Cursor(int(row.xid), row.event_id),
            row.attempt,
            row.status,
            row.error,
            row.milliseconds,
            row.at,
            row.id,
        )
        for row in rows
    ]


# --- for whoever delivers


async def any_due(session: Session, worker: str) -> bool:
    """Whether it is worth a transaction that writes."""
    at = await newest(session)
    return bool(await session.value(f"SELECT EXISTS ({_DUE})", worker=worker, xid=str(at.xid), event_id=at.id))


async def take_due(session: Session, worker: str, besides: list[int]) -> list[Work]:
    """Take the hooks for which something may have happened and that nobody serves."""
    at = await newest(session)
    rows = await session.rows(
        f"UPDATE webhooks SET worker = :worker, lease_until = now() + {LEASE} * interval '1 second' WHERE id IN ("
        f" {_DUE} AND NOT id = ANY (:besides) ORDER BY id FOR UPDATE SKIP LOCKED) RETURNING {_COLUMNS}, secret",
        worker=worker,
        besides=besides,
        xid=str(at.xid),
        event_id=at.id,
    )
    vault = session.store.vault
    return [Work(_record(row), str(vault.open(row.secret))) for row in rows]


_DUE = """
SELECT id FROM webhooks WHERE state = 'active' AND (not_before IS NULL OR not_before <= now())
  AND (worker = :worker OR lease_until IS NULL OR lease_until < now())
  AND (xid, event_id) < (CAST(CAST(:xid AS text) AS xid8), CAST(:event_id AS bigint))
"""


async def next_events(session: Session, hook: WebhookRecord, after: Cursor, limit: int) -> tuple[list[Event], Cursor]:
    """What to deliver next, and the place after it up to which there is nothing else for this hook."""
    start = max(after, await forgotten(session))
    found = await read_events(session, start, limit, EventFilter(hook.kinds, audit=True))
    return found, found[-1].cursor if len(found) == limit else max(start, await newest(session))


async def advance(session: Session, hook_id: int, worker: str, upto: Cursor, delivery: Delivery | None) -> bool:
    """Delivered, or nothing to deliver, up to this place. Whether this worker still holds the hook."""
    if delivery is not None:
        await _remember(session, hook_id, delivery)
    held = await session.run(
        "UPDATE webhooks SET xid = CAST(CAST(:xid AS text) AS xid8), event_id = :event_id, failures = 0, error = '',"
        f" not_before = NULL, lease_until = now() + {LEASE} * interval '1 second'"
        " WHERE id = :id AND worker = :worker AND state = 'active'",
        xid=str(upto.xid),
        event_id=upto.id,
        id=hook_id,
        worker=worker,
    )
    return held == 1


async def fail(session: Session, hook: WebhookRecord, worker: str, delivery: Delivery) -> None:
    """Try again later; after many times, not any more until somebody says so."""
    await _remember(session, hook.id, delivery)
    over = delivery.attempt >= GIVE_UP
    held = await session.run(
        "UPDATE webhooks SET failures = :failures, error = :error, state = :state, lease_until = NULL,"
        " not_before = now() + :wait * interval '1 second' WHERE id = :id AND worker = :worker AND state = 'active'",
        failures=delivery.attempt,
        error=delivery.error,
        state="stopped" if over else "active",
        wait=back_off(delivery.attempt),
        id=hook.id,
        worker=worker,
    )
    if over and held:
        await emit(session, "webhook.stopped", hook.id, data={"name": hook.name, "error": delivery.error})


def back_off(failures: int) -> float:
    """Seconds until the next try."""
    return float(min(LONGEST_WAIT, 2 ** max(0, failures - 1)))


async def release(session: Session, hook_id: int, worker: str) -> None:
    await session.run(
        "UPDATE webhooks SET worker = NULL, lease_until = NULL WHERE id = :id AND worker = :worker",
        id=hook_id,
        worker=worker,
    )


async def _remember(session: Session, hook_id: int, delivery: Delivery) -> None:
    await session.run(
        "INSERT INTO webhook_deliveries (webhook_id, xid, event_id, kind, attempt, status, error, milliseconds) SELECT"
        " id, CAST(CAST(:xid AS text) AS xid8), :event_id, :kind, :attempt, :status, :error, :milliseconds"
        " FROM webhooks WHERE id = :id",
        id=hook_id,
        xid=str(delivery.cursor.xid),
        event_id=delivery.cursor.id,
        kind=delivery.kind,
        attempt=delivery.attempt,
        status=delivery.status,
        error=delivery.error,
        milliseconds=delivery.milliseconds,
    )
    await session.run(
        "DELETE FROM webhook_deliveries WHERE webhook_id = :id AND id <= (SELECT id FROM webhook_deliveries"
        " WHERE webhook_id = :id ORDER BY id DESC OFFSET :kept LIMIT 1)",
        id=hook_id,
        kept=KEPT,
    )


_COLUMNS = "id, name, url, kinds, state, xid::text AS xid, event_id, failures, error, not_before, created_at"
_SELECT = f"SELECT {_COLUMNS} FROM webhooks"


def _record(row: Row[Any]) -> WebhookRecord:
    return WebhookRecord(
        row.id,
        row.name,
        row.url,
        tuple(row.kinds),
        row.state,
        Cursor(int(row.xid), row.event_id),
        row.failures,
        row.error,
        row.not_before,
        row.created_at,
    )
