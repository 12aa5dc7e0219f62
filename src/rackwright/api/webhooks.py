"""/api/v2/webhooks: for administrators."""

import contextlib
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Administrator, Caller
from rackwright.api.deliveries import Courier
from rackwright.api.events import KIND
from rackwright.domain.errors import Invalid
from rackwright.domain.targets import parse_target, refusal
from rackwright.store import webhooks
from rackwright.store.events import Cursor, Event
from rackwright.store.session import Session
from rackwright.store.webhooks import Delivery, WebhookRecord, get_webhook

router = APIRouter(prefix="/webhooks", tags=["events"])


class WebhookIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63, examples=["chat"])
    url: str = Field(max_length=2000, examples=["https://chat.example/rackwright"])
    kinds: list[Annotated[str, Field(pattern=KIND, max_length=64)]] = Field(
        default_factory=list, max_length=32, description="Such as `noderole.error` or `node.*`; none: all events."
    )
    secret: str | None = Field(None, min_length=16, max_length=200, description="What signs; made here if left out.")


class WebhookOut(BaseModel):
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
        return cls(**{**vars(hook), "kinds": list(hook.kinds), "cursor": str(hook.cursor)})


class NewWebhookOut(WebhookOut):
    secret: str = Field(description="Shown this once.")


class WebhooksOut(BaseModel):
    items: list[WebhookOut]
    next: str | None = None


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


class DeliveriesOut(BaseModel):
    items: list[DeliveryOut]
    next: str | None = None


@router.get("")
async def list_all(caller: Administrator) -> WebhooksOut:
    async with caller.server.store.read() as session:
        return WebhooksOut(items=[WebhookOut.of(hook) for hook in await webhooks.list_webhooks(session)])


@router.post("", status_code=201)
async def create(caller: Administrator, body: WebhookIn) -> NewWebhookOut:
    """Events from now on are sent there, each signed, in their order."""
    _check(caller, body.url)

    async def work(session: Session) -> NewWebhookOut:
        id, secret = await webhooks.create_webhook(session, body.name, body.url, tuple(body.kinds), body.secret)
        return NewWebhookOut(**WebhookOut.of(await get_webhook(session, id)).model_dump(), secret=secret)

    return await caller.change(work)


def _check(caller: Caller, url: str) -> None:
    """An address can be judged at once; what a name resolves to is looked at anew for each call."""
    target = parse_target(url)
    with contextlib.suppress(ValueError):
        why = refusal(ip_address(target.host), caller.server.policy.webhook_allow)
        if why is not None:
            raise Invalid(why, "/url")


@router.get("/{webhook}")
async def show(caller: Administrator, webhook: str) -> WebhookOut:
    async with caller.server.store.read() as session:
        return WebhookOut.of(await get_webhook(session, webhook))


@router.delete("/{webhook}", status_code=204)
async def delete(caller: Administrator, webhook: str) -> None:
    await caller.change(lambda session: webhooks.delete_webhook(session, webhook))


@router.get("/{webhook}/deliveries")
async def deliveries(caller: Administrator, webhook: str) -> DeliveriesOut:
    """The last calls, the newest first."""
    async with caller.server.store.read() as session:
        hook = await get_webhook(session, webhook)
        found = await webhooks.list_deliveries(session, hook.id)
    return DeliveriesOut(items=[DeliveryOut.of(one) for one in found])


@router.post("/{webhook}/resume")
async def resume(caller: Administrator, webhook: str) -> WebhookOut:
    """Try again at once, also if it was given up."""
    await caller.change(lambda session: webhooks.resume_webhook(session, webhook))
    return await show(caller, webhook)


@router.post("/{webhook}/test")
async def test(caller: Administrator, webhook: str) -> DeliveryOut:
    """Call it now with an event of kind `webhook.test`, and say how that went."""
    async with caller.server.store.read() as session:
        hook = await get_webhook(session, webhook)
        secret = await webhooks.open_secret(session, hook.id)
    now = datetime.now(UTC)
    event = Event(Cursor(), "webhook.test", hook.id, None, None, {"name": hook.name}, caller.principal.name, "", now)
    courier = Courier(caller.server.policy.webhook_allow)
    return DeliveryOut.of(await courier.deliver(hook.name, hook.url, secret, event, 1))
