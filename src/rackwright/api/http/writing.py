"""Changes over the API: If-Match, Idempotency-Key, and the answer made inside the transaction it tells of."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from rackwright.api.context import Caller
from rackwright.api.http.answers import Resource, answer
from rackwright.api.http.etags import check_if_match, parse_if_match
from rackwright.domain.people import Principal
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.events.repeated_requests import KeptResponse, claim_key, keep_response, read_kept_response

S = TypeVar("S", bound=Session)
Location = Callable[[BaseModel], str]
"""Says where to find what was made."""

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=2000,
        description="The ETag of the object as you saw it. If it has changed since, nothing is done: 412.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Of your making, new for each request. Sent again within a day, the request is not done again"
        " but answered as before.",
    ),
]


@dataclass(frozen=True)
class Terms:
    """On which terms a client wants its change made."""

    seen: frozenset[str] | None = None
    key: str | None = None
    request: bytes = b""
    """A hash of what was asked: the same key may not stand for anything else."""

    def check(self, current: Resource, what: str) -> None:
        """Refuse the change if the object is not what the client saw. It must be locked by now."""
        check_if_match(self.seen, current.etag, what)


async def _editing(if_match: IfMatch = None) -> Terms:
    return Terms(None if if_match is None else parse_if_match(if_match))


async def _posting(request: Request, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None) -> Terms:
    seen = None if if_match is None else parse_if_match(if_match)
    if idempotency_key is None:
        return Terms(seen)
    asked = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    asked.update(await request.body())
    return Terms(seen, idempotency_key, asked.digest())


Editing = Annotated[Terms, Depends(_editing)]
"""For PATCH, PUT and DELETE."""
Posting = Annotated[Terms, Depends(_posting)]
"""For POST."""


async def write(
    caller: Caller,
    terms: Terms,
    work: Callable[[Session], Awaitable[BaseModel | None]],
    *,
    status: int = 200,
    location: Location | None = None,
) -> Response:
    """Make a change and answer with what `work` gives, all in one transaction. None: 204."""
    return await caller.change(_once(caller, terms, work, status, location))


async def write_graph(
    caller: Caller,
    terms: Terms,
    work: Callable[[GraphSession], Awaitable[BaseModel | None]],
    *,
    status: int = 200,
    location: Location | None = None,
) -> Response:
    """As `write`, with the graph lock."""
    return await caller.change_graph(_once(caller, terms, work, status, location))


def _once(
    caller: Caller,
    terms: Terms,
    work: Callable[[S], Awaitable[BaseModel | None]],
    status: int,
    location: Location | None,
) -> Callable[[S], Awaitable[Response]]:
    """The work and its answer; the answer given before if the same request was made before."""

    async def once(session: S) -> Response:
        if terms.key is None:
            return _rendered(await work(session), status, location)
        owner = _owner(caller.principal)
        kept = await claim_key(session, owner, terms.key, terms.request)
        if kept is not None:
            caller.was_answered_before(session)
            return _again(kept)
        response = _rendered(await work(session), status, location)
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        await keep_response(
            session, owner, terms.key, KeptResponse(response.status_code, headers, bytes(response.body))
        )
        return response

    return once


async def try_out(
    caller: Caller, terms: Terms, work: Callable[[Session], Awaitable[BaseModel | None]], *, status: int = 200
) -> Response:
    """Answer a dry run with what `work` gives, in a transaction that only reads: it waits for no change, and none waits
    for it. Only for a client that sent a key is something written, by itself: the answer, which is kept."""
    kept = await replayed(caller, terms)
    if kept is not None:
        return kept
    found = await caller.try_out(work)
    if terms.key is None:
        return _rendered(found, status, None)

    async def keep(session: Session) -> BaseModel | None:
        caller.concerns_caller(session)
        return found

    return await write(caller, terms, keep, status=status)


async def replayed(caller: Caller, terms: Terms) -> Response | None:
    """The answer that this request got before: for what cannot be done in one transaction, asked before it is done."""
    if terms.key is None:
        return None
    async with caller.server.store.read() as session:
        kept = await read_kept_response(session, _owner(caller.principal), terms.key, terms.request)
    return None if kept is None else _again(kept)


def _owner(principal: Principal) -> str:
    """Whose keys they are: a person's, with what they may do now. Whoever may do more or less since, or comes with
    another kind of token, has keys of their own: no answer is repeated to somebody who would be refused by now."""
    powers = (principal.role.value, sorted(principal.grants.items()), principal.scope.value, principal.subtree)
    return f"{principal.user_id} {hashlib.sha256(repr(powers).encode()).hexdigest()[:32]}"


def _again(kept: KeptResponse) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, "Idempotency-Replayed": "true"})


def _rendered(made: BaseModel | None, status: int, location: Location | None) -> Response:
    headers: Mapping[str, str] = {"Location": location(made)} if location and made is not None else {}
    return answer(made, status, headers=headers)
