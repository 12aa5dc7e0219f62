"""The call of one webhook with one event: its target checked, its body signed, its result returned as a Delivery.

A target's name is resolved once, and exactly the address that was found is called. Nothing that the target answers is
believed. The loop that follows the outbox and decides what is sent when is `server/webhook_deliveries.py`.
"""

import asyncio
import hashlib
import hmac
import json
import socket
import ssl
import time
from collections.abc import Sequence
from functools import cache
from ipaddress import ip_address

import httpx

from rackwright import __version__
from rackwright.api.routes.events import EventOut
from rackwright.domain.errors import Invalid
from rackwright.domain.networks.call_targets import Address, CallTarget, IpNetwork, call_refusal, parse_target
from rackwright.store.db.session import first_line
from rackwright.store.events.outbox import Event
from rackwright.store.events.webhooks import Delivery

CALL_SECONDS = 10.0
"""Seconds for a whole call."""
LONGEST_RESPONSE = 64 * 1024
"""Bytes of a response that are read, and thrown away; one that is longer is cut off."""
SIGNATURE = "Rackwright-Signature"


class TargetRefused(Exception):
    """A webhook's target that is not called: its name cannot be resolved, or its address is not allowed."""


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Return the signature header of a delivery.

    By it the receiver checks who sent the body, that nobody changed it, and that it is not an old one sent again.
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


@cache
def tls_context() -> ssl.SSLContext:
    """Return a TLS context that trusts the certificate authorities of this host."""
    return ssl.create_default_context()


class WebhookSender:
    """Sends events to webhooks' targets, one call at a time."""

    def __init__(self, allowed: Sequence[IpNetwork] = (), seconds: float | None = None) -> None:
        """`allowed`: private networks that may be called all the same. `seconds`: how long a whole call may take."""
        self.allowed = allowed
        self.seconds = CALL_SECONDS if seconds is None else seconds

    async def deliver(self, hook: str, url: str, secret: str, event: Event, attempt: int) -> Delivery:
        """Make one call. What went wrong is in the returned delivery, never raised."""
        began, status, error = time.monotonic(), None, ""
        try:
            async with asyncio.timeout(self.seconds):
                status = await self._call(parse_target(url), hook, secret, event)
            if not 200 <= status < 300:
                redirect = "; redirects are not followed" if 300 <= status < 400 else ""
                error = f"It answered {status}{redirect}."
        except TimeoutError:
            error = f"It did not answer within {self.seconds:g} s."
        except (TargetRefused, Invalid) as reason:
            error = str(reason)
        except (httpx.HTTPError, OSError) as reason:
            error = f"It could not be called: {first_line(reason) or type(reason).__name__}"
        milliseconds = round((time.monotonic() - began) * 1000)
        return Delivery(event.kind, event.cursor, attempt, status, error[:500], milliseconds)

    async def _call(self, target: CallTarget, hook: str, secret: str, event: Event) -> int:
        """Send the event and return the status of the response."""
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
        # A new client for each call: nothing of one receiver, no connection and no cookie, is there for the next.
        async with (
            httpx.AsyncClient(
                verify=tls_context(), trust_env=False, follow_redirects=False, timeout=self.seconds
            ) as client,
            client.stream(
                "POST",
                target.at(address),
                content=body,
                headers=headers,
                # The certificate must be the name's, although the address is what we connect to.
                extensions={"sni_hostname": target.host} if target.scheme == "https" else {},
            ) as response,
        ):
            read = 0
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read > LONGEST_RESPONSE:
                    break
            return response.status_code

    async def _resolve(self, target: CallTarget) -> Address:
        """Return the address to call.

        If any address that the name has is refused, none is called: else it would be a matter of luck.
        """
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise TargetRefused(f"The name {target.host} cannot be resolved: {error.strerror}.") from None
        addresses = [ip_address(entry[4][0]) for entry in entries]
        for address in addresses:
            reason = call_refusal(address, self.allowed)
            if reason is not None:
                raise TargetRefused(reason)
        return addresses[0]
