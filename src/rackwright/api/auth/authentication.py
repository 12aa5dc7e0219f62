"""Who is behind a request: by token or by session cookie, remembered for a moment so that most requests ask nobody.

What this process changes about people counts at once, what another server changed within `MEMORY` seconds.
"""

import base64
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import HTTPConnection

from rackwright.api.auth.cookies import COOKIE
from rackwright.domain.errors import RackwrightError
from rackwright.domain.people import Principal
from rackwright.store.db.session import Session
from rackwright.store.machines.registration import find_node_by_token
from rackwright.store.people.sessions import Lifetime, find_session_principal, mark_session_seen
from rackwright.store.people.tokens import find_token_principal, hash_secret, mark_token_used
from rackwright.store.store import Store

K = TypeVar("K")
V = TypeVar("V")

MEMORY = 1.0
REMEMBERED = 10_000
MARK_EVERY = 60.0
CSRF_HEADER = "X-CSRF-Token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Unauthenticated(RackwrightError):
    """Say who you are: send a token as `Authorization: Bearer ...`, or log in."""

    status = 401
    type = "unauthenticated"


class Forbidden(RackwrightError):
    """Your role does not allow this."""

    status = 403
    type = "forbidden"


class CrossSite(Forbidden):
    """This request did not come from our own pages, or did not prove it."""

    type = "cross-site"


def csrf_token(secret: str) -> str:
    """What proves that a page could read the login's answer. Derived from the session, so there is nothing to store."""
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"csrf", "sha256")).decode().rstrip("=")


def check_origin(request: HTTPConnection) -> None:
    """Browsers say where a request comes from, and pages of others cannot forge it."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise CrossSite(f"This request comes from a page of {origin[:100]}, which may not act in your name here.")
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise CrossSite("This request comes from a page of another site, which may not act in your name here.")


def _check_csrf(request: HTTPConnection, secret: str) -> None:
    check_origin(request)
    given = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf_token(secret).encode()):
        raise CrossSite(f"Send the `csrf` value of GET /api/v2/me as {CSRF_HEADER}, or use a token.")


class Doorkeeper:
    """One an application."""

    def __init__(self, store: Store, life: Lifetime, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._life = life
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[int, float, Principal]] = OrderedDict()
        self._marked: OrderedDict[tuple[str, int], float] = OrderedDict()

    async def identify(self, request: HTTPConnection, token: str | None) -> Principal:
        """The caller; an error says why there is none."""
        if token is not None:
            principal = await self._look_up("token", token)
            if principal is None:
                await self._refuse_machine(token)
        else:
            secret = request.cookies.get(COOKIE, "")
            principal = await self._look_up("session", secret) if secret else None
            if principal is not None and request.scope.get("method", "GET") not in SAFE:
                _check_csrf(request, secret)
        if principal is None:
            raise Unauthenticated
        return principal

    async def knows(self, request: HTTPConnection) -> bool:
        """Whether the request comes with a person's token or session that holds. What it may do is not asked."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._look_up("token", token) is not None
        secret = request.cookies.get(COOKIE, "")
        return bool(secret) and await self._look_up("session", secret) is not None

    async def _look_up(self, kind: str, secret: str) -> Principal | None:
        key, version, now = hash_secret(f"{kind} {secret}"), self._store.permissions_version, self._clock()
        known = self._known.get(key)
        if known is not None and known[0] == version and known[1] > now:
            return known[2]
        async with self._store.read() as session:
            if kind == "token":
                principal = await find_token_principal(session, secret)
            else:
                principal = await find_session_principal(session, secret, self._life)
        if principal is not None:
            _keep(self._known, key, (version, now + MEMORY, principal))
            await self._mark(principal)
        return principal

    async def _mark(self, principal: Principal) -> None:
        """When it was last used, now and then."""
        mark: Callable[[Session, int], Awaitable[None]]
        kind, id, mark = (
            ("token", principal.token_id, mark_token_used)
            if principal.token_id is not None
            else ("session", principal.session_id or 0, mark_session_seen)
        )
        if self._marked.get((kind, id), -MARK_EVERY) + MARK_EVERY <= self._clock():
            _keep(self._marked, (kind, id), self._clock())
            await self._store.change(lambda session: mark(session, id), actor=principal.name)

    async def _refuse_machine(self, token: str) -> None:
        async with self._store.read() as session:
            if await find_node_by_token(session, token) is not None:
                raise Forbidden("This is a machine's token; it can do nothing but what that machine needs.")


def _keep(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > REMEMBERED:
        known.popitem(last=False)
