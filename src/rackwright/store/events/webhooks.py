"""Webhooks as stored: each has a cursor in the outbox, which the server that delivers its events moves on one by one.

One server at a time serves a webhook, under a lease. An event is delivered at least once: if a server dies between the
call and its record, the event is delivered again, with the same id.
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
from rackwright.store.events.outbox import (
    Cursor,
    Event,
    EventFilter,
    emit,
    forgotten_cursor,
    newest_cursor,
    read_events,
)

MAX_FAILURES = 15
"""Failures of one event after which the webhook is stopped: with the back-off, more than half a day."""
LONGEST_WAIT_SECONDS = 3600
LEASE_SECONDS = 60
KEPT_DELIVERIES = 200
"""The number of deliveries that are kept of each webhook."""


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
class ClaimedWebhook:
    """A webhook that this worker has claimed, with the secret that signs its calls."""

    hook: WebhookRecord
    secret: str


@dataclass(frozen=True)
class Delivery:
    """The record of one call of a webhook."""

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
    """Create a webhook for events from now on, and return its id and its secret."""
    check_name("webhook", name)
    if await session.value("SELECT 1 FROM webhooks WHERE name = :name", name=name):
        raise Conflict(Rule.EXISTS, f"There is a webhook {name!r} already. Choose another name.")
    secret = secret or secrets.token_urlsafe(32)
    start = await newest_cursor(session)
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
    records = await select_webhooks(
        session, "WHERE name = :name OR id = :id", name=str(name_or_id), id=key_id(name_or_id)
    )
    if not records:
        raise NotFound("webhook", name_or_id)
    return records[0]


async def open_secret(session: Session, hook_id: int) -> str:
    sealed = await session.value("SELECT secret FROM webhooks WHERE id = :id", id=hook_id)
    return str(session.store.vault.open(sealed))


async def delete_webhook(session: Session, hook: WebhookRecord) -> None:
    await session.run("DELETE FROM webhooks WHERE id = :id", id=hook.id)
    await emit(session, "webhook.deleted", hook.id, data={"name": hook.name})


async def resume_webhook(session: Session, hook: WebhookRecord) -> None:
    """Deliver again, from the event at which the webhook was stopped."""
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


# --- for the server that delivers


async def has_due_webhooks(session: Session, worker: str) -> bool:
    """Return whether any webhook is due: only then is a transaction that writes worth its cost."""
    at = await newest_cursor(session)
    return bool(await session.value(f"SELECT EXISTS ({_DUE})", worker=worker, xid=str(at.xid), event_id=at.id))


async def claim_due_webhooks(session: Session, worker: str, excluded: list[int]) -> list[ClaimedWebhook]:
    """Claim the webhooks that no server serves and for which there may be events."""
    at = await newest_cursor(session)
    rows = await session.rows(
        f"UPDATE webhooks SET worker = :worker, lease_until = now() + {LEASE_SECONDS} * interval '1 second'"
        f" WHERE id IN ( {_DUE} AND NOT id = ANY (:excluded) ORDER BY id FOR UPDATE SKIP LOCKED)"
        f" RETURNING {_COLUMNS}, secret",
        worker=worker,
        excluded=excluded,
        xid=str(at.xid),
        event_id=at.id,
    )
    vault = session.store.vault
    return [ClaimedWebhook(_record(row), str(vault.open(row.secret))) for row in rows]


_DUE = """
SELECT id FROM webhooks WHERE state = 'active' AND (not_before IS NULL OR not_before <= now())
  AND (worker = :worker OR lease_until IS NULL OR lease_until < now())
  AND (xid, event_id) < (CAST(CAST(:xid AS text) AS xid8), CAST(:event_id AS bigint))
"""


async def next_events(session: Session, hook: WebhookRecord, after: Cursor, limit: int) -> tuple[list[Event], Cursor]:
    """Return the next events to deliver, and the cursor up to which there is nothing else for this webhook."""
    start = max(after, await forgotten_cursor(session))
    events = await read_events(session, start, limit, EventFilter(hook.kinds, audit=True))
    return events, events[-1].cursor if len(events) == limit else max(start, await newest_cursor(session))


async def advance_webhook(session: Session, hook_id: int, worker: str, upto: Cursor, delivery: Delivery | None) -> bool:
    """Move a webhook's cursor to `upto`, when all before it is delivered or there is nothing to deliver.

    Return whether this worker still holds the webhook.
    """
    if delivery is not None:
        await _record_delivery(session, hook_id, delivery)
    held = await session.run(
        "UPDATE webhooks SET xid = CAST(CAST(:xid AS text) AS xid8), event_id = :event_id, failures = 0, error = '',"
        f" not_before = NULL, lease_until = now() + {LEASE_SECONDS} * interval '1 second'"
        " WHERE id = :id AND worker = :worker AND state = 'active'",
        xid=str(upto.xid),
        event_id=upto.id,
        id=hook_id,
        worker=worker,
    )
    return held == 1


async def record_failure(session: Session, hook: WebhookRecord, worker: str, delivery: Delivery) -> None:
    """Record a failed delivery: it is tried again later, and after many failures only when a person resumes it."""
    await _record_delivery(session, hook.id, delivery)
    given_up = delivery.attempt >= MAX_FAILURES
    held = await session.run(
        "UPDATE webhooks SET failures = :failures, error = :error, state = :state, lease_until = NULL,"
        " not_before = now() + :wait * interval '1 second' WHERE id = :id AND worker = :worker AND state = 'active'",
        failures=delivery.attempt,
        error=delivery.error,
        state="stopped" if given_up else "active",
        wait=back_off(delivery.attempt),
        id=hook.id,
        worker=worker,
    )
    if given_up and held:
        await emit(session, "webhook.stopped", hook.id, data={"name": hook.name, "error": delivery.error})


def back_off(failures: int) -> float:
    """Return the seconds until the next try."""
    return float(min(LONGEST_WAIT_SECONDS, 2 ** max(0, failures - 1)))


async def release_webhook(session: Session, hook_id: int, worker: str) -> None:
    await session.run(
        "UPDATE webhooks SET worker = NULL, lease_until = NULL WHERE id = :id AND worker = :worker",
        id=hook_id,
        worker=worker,
    )


async def _record_delivery(session: Session, hook_id: int, delivery: Delivery) -> None:
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
        kept=KEPT_DELIVERIES,
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
