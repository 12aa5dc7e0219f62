"""/api/v2/runs: what jigs did and do, with the logs, which can also be followed as they grow."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from rackwright.api.context import Forbidden, ScopedReader, Unauthenticated, Writer, authenticate
from rackwright.api.event_feed import EventFeed
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Id
from rackwright.api.http.writing import PostTerms, write
from rackwright.domain.errors import NotFound
from rackwright.domain.people import Permission
from rackwright.domain.runs import ENDED
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import read_root_id
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.run_lifecycle import RUNS, RunRecord, select_runs
from rackwright.store.runs.run_logs import read_log

router = APIRouter(prefix="/runs", tags=["runs"])

LOOK_SECONDS = 0.25
"""Seconds between two looks at a log that grows."""
GRACE_SECONDS = 2.0
"""Seconds after the end of a run in which the last of its log may still come."""
KEEP_ALIVE_SECONDS = 15.0
"""Seconds after which something is sent even if the log is silent, so that no proxy closes the connection."""
RECHECK_SECONDS = 5.0
"""Seconds after which it is checked again whether the reader may still see the run."""


class RunOut(Resource):
    """One noderole in the hands of its jig."""

    id: int
    node_role_id: int
    node: str | None = Field(description="Null once the node is gone.")
    role: str | None
    deployment: str | None
    deployment_id: int | None
    jig: str
    state: str = Field(description="queued, running, accepted, succeeded, failed, cancelled or lost.")
    attempt: int
    refresh: bool = Field(description="Of a noderole that is active and stays so meanwhile.")
    worker: str | None = Field(description="The server that executes it.")
    error: str
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    trace: str = Field(description="The trace id of the request that led to it.")
    content: str = Field(description="The digest of the barclamp's files that it ran; empty if its jig runs none.")

    @classmethod
    def of(cls, run: RunRecord) -> "RunOut":
        return cls(etag=make_etag(run.id, run.state), **asdict(run))


@router.get("", response_model=Page[RunOut])
async def list_runs(caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(RUNS))]) -> Response:
    """All runs, or those that fit, the newest first. They are kept for 30 days."""
    async with caller.read(once=True) as (session, visible):
        return await read_page(session, visible, query, select_runs, RunOut, RunOut.of)


@router.get("/{id}", response_model=RunOut)
async def get_run(caller: ScopedReader, id: Id, fields: Fields) -> Response:
    """One run."""
    async with caller.read(once=True) as (session, visible):
        return answer(RunOut.of(await run_lifecycle.get_run(session, id, visible)), fields=fields)


@router.post("/{id}/cancel", response_model=RunOut)
async def cancel_run(caller: Writer, terms: PostTerms, id: Id) -> Response:
    """End a run. Its noderole goes to error; the worker that executes it stops."""

    async def work(session: Session) -> RunOut:
        run = await run_lifecycle.get_run(session, id, EVERYTHING)
        await caller.authorize(session, run.deployment_id or await read_root_id(session))
        terms.check(RunOut.of(run), f"run {id}")
        await run_lifecycle.cancel_run(session, id)
        return RunOut.of(await run_lifecycle.get_run(session, id, EVERYTHING))

    return await write(caller, terms, work)


After = Annotated[int, Query(ge=0, le=2**31 - 1, description="Only what came after this piece of the log.")]

_LOG_RESPONSE = {"description": "The log.", "content": {"text/plain": {"schema": {"type": "string"}}}}
_NEXT = {"description": "Send it as `after` to get what comes next.", "schema": {"type": "integer"}}


@router.get(
    "/{id}/log", response_class=Response, responses={200: {**_LOG_RESPONSE, "headers": {"Log-Position": _NEXT}}}
)
async def get_run_log(caller: ScopedReader, id: Id, after: After = 0) -> Response:
    """The log of a run as text, as far as it is written. The header Log-Position says where it ends."""
    async with caller.read() as (session, visible):
        await run_lifecycle.get_run(session, id, visible)
        pieces = await read_log(session, id, after)
    position = pieces[-1][0] if pieces else after
    text = "".join(text for _, text in pieces)
    return Response(text, media_type="text/plain; charset=utf-8", headers={"Log-Position": str(position)})


EVENT = {
    "type": "object",
    "description": "One event of the stream.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}

_TAIL_RESPONSE = {
    "description": "Events `log`, each with a piece of the log as a JSON string and its position as id; at the end of"
    " the run one event `end` with its state.",
    "content": {"text/event-stream": {"schema": EVENT}},
}


@router.get("/{id}/log/tail", response_class=StreamingResponse, responses={200: _TAIL_RESPONSE})
async def tail_run_log(
    request: Request,
    caller: ScopedReader,
    id: Id,
    after: After = 0,
    last_event_id: Annotated[str | None, Header(pattern=r"^\d{1,9}$", description="As browsers send it.")] = None,
) -> StreamingResponse:
    """The log of a run as it grows, as server-sent events, until the run ends. To go on after a break, send the last
    position seen, as `after` or as the header Last-Event-ID."""
    async with caller.read() as (session, visible):
        await run_lifecycle.get_run(session, id, visible)
    feed: EventFeed = request.app.state.feed
    feed.check_stream_limit(caller.principal.name)
    position = after if last_event_id is None else int(last_event_id)
    return StreamingResponse(
        _count_as_stream(feed, caller.principal.name, _follow_log(request, id, position)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _count_as_stream(feed: EventFeed, user: str, parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield the parts of a stream, counted as one of those that its reader may have open."""
    with feed.count_stream(user):
        async for part in parts:
            yield part


async def _may_still_read(request: Request, id: int) -> bool:
    """Return whether the token or session of the stream is still valid, and its owner may see the run by now."""
    try:
        caller = await authenticate(request, request.state.credentials)
        async with caller.read() as (session, visible):
            await run_lifecycle.get_run(session, id, visible)
    except (Unauthenticated, Forbidden, NotFound):
        return False
    return caller.principal.may_somewhere(Permission.READ)


async def _follow_log(request: Request, id: int, position: int) -> AsyncIterator[str]:
    """Yield the pieces of a log as events, as they are written, until the run has ended."""
    store, feed = request.app.state.server.store, request.app.state.feed
    quiet_seconds = ended_seconds = 0.0
    checked_at = time.monotonic()
    while not feed.closing:
        async with store.read() as session:
            # The state comes first: so, once it says that the run has ended, the log has all that was written before.
            state = await session.value("SELECT state FROM runs WHERE id = :id", id=id)
            pieces = await read_log(session, id, position)
        if state is not None and time.monotonic() - checked_at > RECHECK_SECONDS:
            checked_at = time.monotonic()
            if not await _may_still_read(request, id):
                return
        for position, text in pieces:  # the position is how far the log was sent
            yield f"event: log\nid: {position}\ndata: {json.dumps(text)}\n\n"
        has_ended = state is None or state in ENDED
        ended_seconds = ended_seconds + LOOK_SECONDS if has_ended and not pieces else 0.0
        if has_ended and ended_seconds > GRACE_SECONDS:
            yield f"event: end\nid: {position}\ndata: {json.dumps(state or 'gone')}\n\n"
            return
        quiet_seconds = 0.0 if pieces else quiet_seconds + LOOK_SECONDS
        if quiet_seconds >= KEEP_ALIVE_SECONDS:
            quiet_seconds = 0.0
            yield ": still there\n\n"
        await asyncio.sleep(LOOK_SECONDS)
