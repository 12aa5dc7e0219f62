"""Who sent a request: found by token or by session cookie, and cached for a moment so that most requests need no query.

What this process changes about people counts at once, what another server changed within `CACHE_SECONDS`.
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

CACHE_SECONDS = 1.0
CACHE_SIZE = 10_000
MARK_SECONDS = 60.0
CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


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
    """Return the token by which a page proves that it could read the login's answer.

    It is derived from the session's secret, so there is nothing to store.
    """
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"csrf", "sha256")).decode().rstrip("=")


def check_origin(request: HTTPConnection) -> None:
    """Refuse a request that a browser sent for a page of another site.

    Browsers say where a request comes from, and pages cannot forge it.
    """
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise CrossSite(f"This request comes from a page of {origin[:100]}, which may not act in your name here.")
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise CrossSite("This request comes from a page of another site, which may not act in your name here.")


def _check_csrf(request: HTTPConnection, secret: str) -> None:
    check_origin(request)
    token = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(token.encode(), csrf_token(secret).encode()):
        raise CrossSite(f"Send the `csrf` value of GET /api/v2/me as {CSRF_HEADER}, or use a token.")


class Authenticator:
    """Finds the principal behind each request of one application."""

    def __init__(self, store: Store, lifetime: Lifetime, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._lifetime = lifetime
        self._clock = clock
        self._principals: OrderedDict[bytes, tuple[int, float, Principal]] = OrderedDict()
        self._marked_at: OrderedDict[tuple[str, int], float] = OrderedDict()

    async def identify(self, request: HTTPConnection, token: str | None) -> Principal:
        """Return the principal; raise an error that says why there is none."""
        if token is not None:
            principal = await self._find_principal("token", token)
            if principal is None:
                await self._refuse_machine_token(token)
        else:
            secret = request.cookies.get(COOKIE, "")
            principal = await self._find_principal("session", secret) if secret else None
            if principal is not None and request.scope.get("method", "GET") not in SAFE_METHODS:
                _check_csrf(request, secret)
        if principal is None:
            raise Unauthenticated
        return principal

    async def knows(self, request: HTTPConnection) -> bool:
        """Return whether the request comes with a valid token or session of a person. What it may do is not checked."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._find_principal("token", token) is not None
        secret = request.cookies.get(COOKIE, "")
        return bool(secret) and await self._find_principal("session", secret) is not None

    async def _find_principal(self, kind: str, secret: str) -> Principal | None:
        """Return the principal of a secret of this kind, from the cache or from the database."""
        key, version, now = hash_secret(f"{kind} {secret}"), self._store.permissions_version, self._clock()
        cached = self._principals.get(key)
        if cached is not None and cached[0] == version and cached[1] > now:
            return cached[2]
        async with self._store.read() as session:
            if kind == "token":
                principal = await find_token_principal(session, secret)
            else:
                principal = await find_session_principal(session, secret, self._lifetime)
        if principal is not None:
            _remember(self._principals, key, (version, now + CACHE_SECONDS, principal))
            await self._mark_used(principal)
        return principal

    async def _mark_used(self, principal: Principal) -> None:
        """Write down when the token or session was last used, at most once in `MARK_SECONDS`."""
        mark: Callable[[Session, int], Awaitable[None]]
        kind, id, mark = (
            ("token", principal.token_id, mark_token_used)
            if principal.token_id is not None
            else ("session", principal.session_id or 0, mark_session_seen)
        )
        if self._marked_at.get((kind, id), -MARK_SECONDS) + MARK_SECONDS <= self._clock():
            _remember(self._marked_at, (kind, id), self._clock())
            await self._store.change(lambda session: mark(session, id), actor=principal.name)

    async def _refuse_machine_token(self, token: str) -> None:
        async with self._store.read() as session:
            if await find_node_by_token(session, token) is not None:
                raise Forbidden("This is a machine's token; it can do nothing but what that machine needs.")


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    """Put a value into a cache that forgets what was put there longest ago."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > CACHE_SIZE:
        cache.popitem(last=False)
