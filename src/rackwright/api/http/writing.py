"""Changes over the API: If-Match, Idempotency-Key, and the response made inside the transaction of the change."""

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
"""Returns the path of a new object."""

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
    """The terms of a change: which version of the object the client saw, and the key that has it done only once."""

    etags: frozenset[str] | None = None
    """Of If-Match; None: there was none."""
    idempotency_key: str | None = None
    request_digest: bytes = b""
    """Of method, path, query and body: the same key may not stand for another request."""

    def check(self, current: Resource, title: str) -> None:
        """Refuse the change if the object is not what the client saw. The object must be locked by now."""
        check_if_match(self.etags, current.etag, title)


async def _edit_terms(if_match: IfMatch = None) -> Terms:
    return Terms(None if if_match is None else parse_if_match(if_match))


async def _post_terms(request: Request, if_match: IfMatch = None, idempotency_key: IdempotencyKey = None) -> Terms:
    etags = None if if_match is None else parse_if_match(if_match)
    if idempotency_key is None:
        return Terms(etags)
    digest = hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query}\n".encode())
    digest.update(await request.body())
    return Terms(etags, idempotency_key, digest.digest())


EditTerms = Annotated[Terms, Depends(_edit_terms)]
"""For PATCH, PUT and DELETE."""
PostTerms = Annotated[Terms, Depends(_post_terms)]
"""For POST."""


async def write(
    caller: Caller,
    terms: Terms,
    work: Callable[[Session], Awaitable[BaseModel | None]],
    *,
    status: int = 200,
    location: Location | None = None,
) -> Response:
    """Make a change and answer with what `work` returns, all in one transaction. None: 204."""
    return await caller.change(_do_once(caller, terms, work, status, location))


async def write_graph(
    caller: Caller,
    terms: Terms,
    work: Callable[[GraphSession], Awaitable[BaseModel | None]],
    *,
    status: int = 200,
    location: Location | None = None,
) -> Response:
    """As `write`, with the graph lock."""
    return await caller.change_graph(_do_once(caller, terms, work, status, location))


def _do_once(
    caller: Caller,
    terms: Terms,
    work: Callable[[S], Awaitable[BaseModel | None]],
    status: int,
    location: Location | None,
) -> Callable[[S], Awaitable[Response]]:
    """Return the work that also makes its response, or repeats the one given before to the same request."""

    async def work_once(session: S) -> Response:
        if terms.idempotency_key is None:
            return _render(await work(session), status, location)
        owner = _key_owner(caller.principal)
        kept = await claim_key(session, owner, terms.idempotency_key, terms.request_digest)
        if kept is not None:
            caller.mark_replayed(session)
            return _replay(kept)
        response = _render(await work(session), status, location)
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        await keep_response(
            session, owner, terms.idempotency_key, KeptResponse(response.status_code, headers, bytes(response.body))
        )
        return response

    return work_once


async def answer_dry_run(
    caller: Caller, terms: Terms, work: Callable[[Session], Awaitable[BaseModel | None]], *, status: int = 200
) -> Response:
    """Answer a dry run with what `work` returns, in a transaction that only reads.

    It waits for no change, and no change waits for it. Only for a client that sent a key is something written, in a
    transaction of its own: the answer, which is kept.
    """
    replay = await find_replay(caller, terms)
    if replay is not None:
        return replay
    result = await caller.run_dry(work)
    if terms.idempotency_key is None:
        return _render(result, status, None)

    async def keep(session: Session) -> BaseModel | None:
        caller.mark_own_change(session)
        return result

    return await write(caller, terms, keep, status=status)


async def find_replay(caller: Caller, terms: Terms) -> Response | None:
    """Return the response that this request got before, if it did.

    For work that cannot be done in one transaction, to be asked before it is done.
    """
    if terms.idempotency_key is None:
        return None
    async with caller.server.store.read() as session:
        kept = await read_kept_response(
            session, _key_owner(caller.principal), terms.idempotency_key, terms.request_digest
        )
    return None if kept is None else _replay(kept)


def _key_owner(principal: Principal) -> str:
    """Return who owns the idempotency keys of a caller: a person with what the person may do now.

    Who may do more or less since, or comes with another kind of token, has other keys: no answer is repeated to
    somebody who would be refused by now.
    """
    powers = (principal.role.value, sorted(principal.grants.items()), principal.scope.value, principal.subtree)
    return f"{principal.user_id} {hashlib.sha256(repr(powers).encode()).hexdigest()[:32]}"


def _replay(kept: KeptResponse) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, "Idempotency-Replayed": "true"})


def _render(resource: BaseModel | None, status: int, location: Location | None) -> Response:
    headers: Mapping[str, str] = {"Location": location(resource)} if location and resource is not None else {}
    return answer(resource, status, headers=headers)
