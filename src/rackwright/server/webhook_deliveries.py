"""Delivering events to webhooks: resolve the name once, call exactly that address, and believe nothing that answers.

A hook's events are called one after the other, in their order. A failure waits and is tried again; after many the
hook is stopped, where an administrator sees why.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import socket
import ssl
import time
from collections.abc import Sequence
from functools import cache
from ipaddress import ip_address

import httpx

from rackwright import __version__
from rackwright.annealer.loop import Loop
from rackwright.api.routes.events import EventOut
from rackwright.domain.errors import Invalid
from rackwright.domain.networks.call_targets import Address, Network, Target, parse_target, refusal
from rackwright.store.db.session import DATABASE_TROUBLE, first_line
from rackwright.store.events import webhooks
from rackwright.store.events.outbox import Cursor, Event
from rackwright.store.events.webhooks import ClaimedWebhook, Delivery
from rackwright.store.store import Store

log = logging.getLogger(__name__)

PATIENCE = 10.0
"""Seconds for a whole call."""
ANSWER = 64 * 1024
"""Bytes of an answer that are read, and thrown away; one that is longer is cut off."""
AT_ONCE = 8
TICK = 2.0
PAGE = 100
SIGNATURE = "Rackwright-Signature"


class Refused(Exception):
    """This address is not called."""


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """What the receiver checks: who sent it, that nobody changed it, and that it is not an old one sent again."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


@cache
def trust() -> ssl.SSLContext:
    """The authorities of this host."""
    return ssl.create_default_context()


class Courier:
    """Calls targets."""

    def __init__(self, allowed: Sequence[Network] = (), patience: float | None = None) -> None:
        self.allowed = allowed
        self.patience = PATIENCE if patience is None else patience

    async def deliver(self, hook: str, url: str, secret: str, event: Event, attempt: int) -> Delivery:
        """One call. What went wrong is in the answer, never raised."""
        began, status, error = time.monotonic(), None, ""
        try:
            async with asyncio.timeout(self.patience):
                status = await self._call(parse_target(url), hook, secret, event)
            if not 200 <= status < 300:
                redirect = "; redirects are not followed" if 300 <= status < 400 else ""
                error = f"It answered {status}{redirect}."
        except TimeoutError:
            error = f"It did not answer within {self.patience:g} s."
        except (Refused, Invalid) as reason:
            error = str(reason)
        except (httpx.HTTPError, OSError) as reason:
            error = f"It could not be called: {first_line(reason) or type(reason).__name__}"
        took = round((time.monotonic() - began) * 1000)
        return Delivery(event.kind, event.cursor, attempt, status, error[:500], took)

    async def _call(self, target: Target, hook: str, secret: str, event: Event) -> int:
        address = await self._resolve(target)
        body = json.dumps({"webhook": hook, "event": EventOut.of(event).model_dump(mode="json")}).encode()
        headers = {
            "Host": target.authority,
            "Content-Type": "application/json",
            "User-Agent": f"Rackwright/{__version__}",
            "Rackwright-Event": event.kind,
            "Rackwright-Delivery": str(event.cursor),
            SIGNATURE: sign(secret, int(time.time()), body),
        }
        # A client a call: nothing of one receiver, no connection and no cookie, is there for the next.
        async with (
            httpx.AsyncClient(verify=trust(), trust_env=False, follow_redirects=False, timeout=self.patience) as client,
            client.stream(
                "POST",
                target.at(address),
                content=body,
                headers=headers,
                # The certificate must be the name's, although the address is what we connect to.
                extensions={"sni_hostname": target.host} if target.scheme == "https" else {},
            ) as answer,
        ):
            read = 0
            async for chunk in answer.aiter_raw():
                read += len(chunk)
                if read > ANSWER:
                    break
            return answer.status_code

    async def _resolve(self, target: Target) -> Address:
        """One address to call. If any that the name has is refused, none is: it would be a matter of luck."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise Refused(f"The name {target.host} cannot be resolved: {error.strerror}.") from None
        addresses = [ip_address(entry[4][0]) for entry in found]
        for address in addresses:
            why = refusal(address, self.allowed)
            if why is not None:
                raise Refused(why)
        return addresses[0]


class Webhooks:
    """Serves all hooks until cancelled."""

    def __init__(self, store: Store, worker: str, courier: Courier, tick: float = TICK) -> None:
        self.store = store
        self.worker = worker
        self.courier = courier
        self.tick = tick
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        loop = Loop(
            self.store, tick=self.tick, purpose="call webhooks", at_most_every=self.tick / 10, with_commits=True
        )
        try:
            await loop.run(self._start_due)
        finally:
            serving = list(self._busy.values())
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    async def _start_due(self) -> None:
        async with self.store.read() as session:
            if not await webhooks.has_due_webhooks(session, self.worker):
                return
        taken = await self.store.change(
            lambda session: webhooks.claim_due_webhooks(session, self.worker, list(self._busy)), actor="webhooks"
        )
        for work in taken:
            self._busy[work.hook.id] = asyncio.create_task(self._serve(work), name=f"webhook {work.hook.name}")

    async def _serve(self, work: ClaimedWebhook) -> None:
        """Deliver what there is, until there is nothing more or a call fails."""
        try:
            async with self._places:
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
                found, upto = await webhooks.next_events(session, hook, cursor, PAGE)
            for event in found:
                delivery = await self.courier.deliver(hook.name, hook.url, work.secret, event, failures + 1)
                if not delivery.ok:
                    await self._note_failure(work, delivery)
                    return
                failures = 0
                if not await self._note(hook.id, event.cursor, delivery):
                    return
            if upto > (found[-1].cursor if found else cursor) and not await self._note(hook.id, upto, None):
                return
            cursor = upto
            if len(found) < PAGE:
                return

    async def _note(self, hook_id: int, upto: Cursor, delivery: Delivery | None) -> bool:
        return await self.store.change(
            lambda session: webhooks.advance_webhook(session, hook_id, self.worker, upto, delivery), actor="webhooks"
        )

    async def _note_failure(self, work: ClaimedWebhook, delivery: Delivery) -> None:
        await self.store.change(
            lambda session: webhooks.record_failure(session, work.hook, self.worker, delivery), actor="webhooks"
        )
