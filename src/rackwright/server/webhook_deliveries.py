"""The loop that follows the outbox and delivers its events to webhooks.

The events of one webhook are sent one after the other, in their order. A call that failed is tried again after a while;
after many failures the webhook is stopped, where an administrator sees why. `api/webhook_sender.py` makes one call.
"""

import asyncio
import logging

from rackwright.annealer.loop import Loop
from rackwright.api.webhook_sender import WebhookSender
from rackwright.store.db.session import DATABASE_TROUBLE, first_line
from rackwright.store.events import webhooks
from rackwright.store.events.outbox import Cursor
from rackwright.store.events.webhooks import ClaimedWebhook, Delivery
from rackwright.store.store import Store

log = logging.getLogger(__name__)

HOOKS_AT_ONCE = 8
TICK = 2.0
PAGE = 100


class WebhookDeliveries:
    """Delivers events to all webhooks until cancelled."""

    def __init__(self, store: Store, worker: str, sender: WebhookSender, tick: float = TICK) -> None:
        self.store = store
        self.worker = worker
        self.sender = sender
        self.tick = tick
        self._busy: dict[int, asyncio.Task[None]] = {}
        """The task of each webhook, by its id, that is being served now."""
        self._limit = asyncio.Semaphore(HOOKS_AT_ONCE)

    async def run(self) -> None:
        loop = Loop(
            self.store, tick=self.tick, purpose="call webhooks", at_most_every=self.tick / 10, with_commits=True
        )
        try:
            await loop.run(self._start_due)
        finally:
            tasks = list(self._busy.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_due(self) -> None:
        """Claim the webhooks that have something to send, and start a task for each."""
        async with self.store.read() as session:
            if not await webhooks.has_due_webhooks(session, self.worker):
                return
        due = await self.store.change(
            lambda session: webhooks.claim_due_webhooks(session, self.worker, list(self._busy)), actor="webhooks"
        )
        for work in due:
            self._busy[work.hook.id] = asyncio.create_task(self._serve(work), name=f"webhook {work.hook.name}")

    async def _serve(self, work: ClaimedWebhook) -> None:
        """Deliver the events of one webhook until there are no more or a call fails."""
        try:
            async with self._limit:
                await self._deliver_all(work)
            await self.store.change(
                lambda session: webhooks.release_webhook(session, work.hook.id, self.worker), actor="webhooks"
            )
        except DATABASE_TROUBLE as error:
            log.warning("webhook %s waits: the database does not answer: %s", work.hook.name, first_line(error))
        finally:
            del self._busy[work.hook.id]

    async def _deliver_all(self, work: ClaimedWebhook) -> None:
        hook, cursor, failures = work.hook, work.hook.cursor, work.hook.failures
        while True:
            async with self.store.read() as session:
                events, upto = await webhooks.next_events(session, hook, cursor, PAGE)
            for event in events:
                delivery = await self.sender.deliver(hook.name, hook.url, work.secret, event, failures + 1)
                if not delivery.ok:
                    await self._record_failure(work, delivery)
                    return
                failures = 0
                if not await self._advance(hook.id, event.cursor, delivery):
                    return
            if upto > (events[-1].cursor if events else cursor) and not await self._advance(hook.id, upto, None):
                return
            cursor = upto
            if len(events) < PAGE:
                return

    async def _advance(self, hook_id: int, upto: Cursor, delivery: Delivery | None) -> bool:
        """Move the webhook's cursor on, with the delivery that led there; False: the webhook is no longer ours."""
        return await self.store.change(
            lambda session: webhooks.advance_webhook(session, hook_id, self.worker, upto, delivery), actor="webhooks"
        )

    async def _record_failure(self, work: ClaimedWebhook, delivery: Delivery) -> None:
        await self.store.change(
            lambda session: webhooks.record_failure(session, work.hook, self.worker, delivery), actor="webhooks"
        )
