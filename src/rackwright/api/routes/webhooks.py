"""/api/v2/webhooks: URLs to which events are sent, for administrators."""

import contextlib
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Administrator, Caller
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Key, Name
from rackwright.api.http.writing import EditTerms, Terms, write
from rackwright.api.routes.events import KIND
from rackwright.api.webhook_sender import WebhookSender
from rackwright.domain.errors import Invalid
from rackwright.domain.networks.call_targets import call_refusal, parse_target
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events import webhooks
from rackwright.store.events.outbox import Cursor, Event
from rackwright.store.events.webhooks import (
    DELIVERIES,
    WEBHOOKS,
    Delivery,
    WebhookRecord,
    get_webhook,
    select_deliveries,
    select_webhooks,
)

router = APIRouter(prefix="/webhooks", tags=["events"])


class WebhookIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name = Field(examples=["chat"])
    url: str = Field(max_length=2000, examples=["https://chat.example/rackwright"])
    kinds: list[Annotated[str, Field(pattern=KIND, max_length=64)]] = Field(
        default_factory=list, max_length=32, description="Such as `noderole.error` or `node.*`; none: all events."
    )
    secret: str | None = Field(None, min_length=16, max_length=200, description="What signs; made here if left out.")


class WebhookOut(Resource):
    """`state` is `stopped` when it failed too often; `resume` has it go on with the event that failed."""

    id: int
    name: str
    url: str
    kinds: list[str]
    state: str
    cursor: str
    failures: int
    error: str
    not_before: datetime | None
    created_at: datetime

    @classmethod
    def of(cls, hook: WebhookRecord) -> "WebhookOut":
        fields = {**vars(hook), "kinds": list(hook.kinds), "cursor": str(hook.cursor)}
        return cls(etag=make_etag(hook.id, hook.name, hook.url, hook.kinds), **fields)


class NewWebhookOut(WebhookOut):
    secret: str = Field(description="Shown this once.")


class DeliveryOut(BaseModel):
    """One call. `error` is empty when it went well."""

    kind: str
    cursor: str
    attempt: int
    status: int | None
    error: str
    milliseconds: int
    at: datetime | None

    @classmethod
    def of(cls, delivery: Delivery) -> "DeliveryOut":
        fields = {name: value for name, value in vars(delivery).items() if name != "id"}
        return cls(**{**fields, "cursor": str(delivery.cursor)})


@router.get("", response_model=Page[WebhookOut])
async def list_webhooks(
    caller: Administrator, query: Annotated[ListQuery, Depends(list_parameters(WEBHOOKS))]
) -> Response:
    """All webhooks, or those that fit."""
    async with caller.server.store.read() as session:
        return await read_page(session, EVERYTHING, query, select_webhooks, WebhookOut, WebhookOut.of)


@router.post("", status_code=201, response_model=NewWebhookOut)
async def create_webhook(caller: Administrator, body: WebhookIn) -> Response:
    """Events from now on are sent there, each signed, in their order."""
    _check_target(caller, body.url)

    async def work(session: Session) -> NewWebhookOut:
        id, secret = await webhooks.create_webhook(session, body.name, body.url, tuple(body.kinds), body.secret)
        return NewWebhookOut(**WebhookOut.of(await get_webhook(session, id)).model_dump(), secret=secret)

    # No Idempotency-Key: what is kept for it would be the secret itself.
    return await write(caller, Terms(), work, status=201, location=lambda _: f"/api/v2/webhooks/{body.name}")


def _check_target(caller: Caller, url: str) -> None:
    """Refuse a URL whose address must not be called. What a name resolves to is checked anew for each call."""
    target = parse_target(url)
    with contextlib.suppress(ValueError):
        reason = call_refusal(ip_address(target.host), caller.server.policy.webhook_allow)
        if reason is not None:
            raise Invalid(reason, "/url")


@router.get("/{webhook}", response_model=WebhookOut)
async def show_webhook(caller: Administrator, webhook: Key, fields: Fields) -> Response:
    """One webhook."""
    async with caller.server.store.read() as session:
        return answer(WebhookOut.of(await get_webhook(session, webhook)), fields=fields)


@router.delete("/{webhook}", status_code=204)
async def delete_webhook(caller: Administrator, terms: EditTerms, webhook: Key) -> Response:
    """Nothing is sent there any more."""

    async def work(session: Session) -> None:
        hook = await get_webhook(session, webhook)
        terms.check(WebhookOut.of(hook), f"webhook {hook.name}")
        await webhooks.delete_webhook(session, hook)

    return await write(caller, terms, work)


DeliveryListQuery = Annotated[ListQuery, Depends(list_parameters(DELIVERIES))]


@router.get("/{webhook}/deliveries", response_model=Page[DeliveryOut])
async def list_webhook_deliveries(caller: Administrator, webhook: Key, query: DeliveryListQuery) -> Response:
    """The last calls, the newest first."""
    async with caller.server.store.read() as session:
        hook = await get_webhook(session, webhook)
        of_webhook = "webhook_id = :webhook_id"
        return await read_page(
            session, EVERYTHING, query, select_deliveries, DeliveryOut, DeliveryOut.of, of_webhook, webhook_id=hook.id
        )


@router.post("/{webhook}/resume", response_model=WebhookOut)
async def resume_webhook(caller: Administrator, terms: EditTerms, webhook: Key) -> Response:
    """Try again at once, also if it was given up."""

    async def work(session: Session) -> WebhookOut:
        hook = await get_webhook(session, webhook)
        terms.check(WebhookOut.of(hook), f"webhook {hook.name}")
        await webhooks.resume_webhook(session, hook)
        return WebhookOut.of(await get_webhook(session, hook.id))

    return await write(caller, terms, work)


@router.post("/{webhook}/test")
async def test_webhook(caller: Administrator, webhook: Key) -> DeliveryOut:
    """Call it now with an event of kind `webhook.test`, and say how that went."""
    async with caller.server.store.read() as session:
        hook = await get_webhook(session, webhook)
        secret = await webhooks.open_secret(session, hook.id)
    now = datetime.now(UTC)
    event = Event(Cursor(), "webhook.test", hook.id, None, None, {"name": hook.name}, caller.principal.name, "", now)
    sender = WebhookSender(caller.server.policy.webhook_allow)
    return DeliveryOut.of(await sender.deliver(hook.name, hook.url, secret, event, 1))
