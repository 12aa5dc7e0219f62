"""/api/v2/events: what happens, as pages or as a stream (SSE), from a cursor on, without gaps or doubles.

A cursor is good for ever (until what follows it is no longer kept, which is a 410), on any server of one database.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, JsonValue
from starlette.types import Send

from rackwright.api.auth.permissions import RequestVisibility
from rackwright.api.context import Caller, Forbidden, ScopedReader, Unauthenticated, authenticated
from rackwright.api.event_feed import Feed
from rackwright.domain.people import Permission
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import (
    Cursor,
    CursorGone,
    Event,
    EventFilter,
    check_cursor_kept,
    forgotten_cursor,
    newest_cursor,
    read_events,
)
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.machines.nodes import get_node

router = APIRouter(prefix="/events", tags=["events"])

SSE = "text/event-stream"
KEEP_ALIVE = 15.0
RECHECK = 5.0
"""Seconds after which a stream asks again whether its token still holds; at once when somebody's access changed."""
STALLED = 60.0
"""Seconds after which a client that reads nothing is let go."""
ACCESS = ("user.", "grant.", "token.revoked", "session.ended")

KIND = r"^[a-z_]+\.(\*|[a-z_.]+)$"


class EventOut(BaseModel):
    cursor: str
    kind: str
    subject_id: int | None
    node_id: int | None
    deployment_id: int | None
    data: JsonValue
    actor: str
    trace: str
    at: datetime

    @classmethod
    def of(cls, event: Event) -> "EventOut":
        return cls(
            cursor=str(event.cursor),
            kind=event.kind,
            subject_id=event.subject_id,
            node_id=event.node_id,
            deployment_id=event.deployment_id,
            data=event.data,
            actor=event.actor,
            trace=event.trace,
            at=event.at,
        )


class EventsOut(BaseModel):
    """`next` is always there: ask again with it as `since`."""

    items: list[EventOut]
    next: str


class EventQuery(BaseModel):
    since: str = Field("", max_length=40, description="A cursor; `now`; or nothing, for the oldest that are kept.")
    kind: list[Annotated[str, Field(pattern=KIND, max_length=64)]] = Field(
        default_factory=list, max_length=32, description="Kinds, such as `node.created` or `node.*`."
    )
    subject: int | None = Field(None, ge=1, lt=2**63, description="The id of what it is about, with `kind`.")
    node: str | None = Field(None, max_length=253)
    deployment: str | None = Field(None, max_length=63)
    limit: int = Field(100, ge=1, le=1000)
    wait: float = Field(0, ge=0, le=60, description="Seconds to wait for the first event, when there is none.")


@router.get(
    "",
    response_model=EventsOut,
    responses={200: {"content": {SSE: {"schema": {"type": "string"}}}}, 410: {"description": "No longer kept."}},
)
async def list_events(
    request: Request,
    caller: ScopedReader,
    query: Annotated[EventQuery, Query()],
    last_event_id: Annotated[str, Header(max_length=40)] = "",
) -> Response | EventsOut:
    """Events in their order. With `Accept: text/event-stream` they are streamed as they happen."""
    feed: Feed = request.app.state.feed
    async with caller.read() as (session, visible):
        wanted = await _wanted(session, visible, caller, query)
        cursor = await _start(session, last_event_id or query.since)
    if SSE in request.headers.get("accept", ""):
        feed.check_place(caller.principal.name)
        return _Stream(request, feed, caller, wanted, cursor)
    if not query.wait:
        return await _page(feed, query, wanted, cursor)
    feed.check_place(caller.principal.name)
    with feed.place_of(caller.principal.name):
        return await _page(feed, query, wanted, cursor)


async def _wanted(session: Session, visible: RequestVisibility, caller: Caller, query: EventQuery) -> EventFilter:
    node = None if query.node is None else await get_node(session, query.node, visible)
    deployment = None if query.deployment is None else await get_deployment(session, query.deployment, visible)
    deployments = visible.deployments()  # for the filter, which says it of what happens later too
    return EventFilter(
        tuple(query.kind),
        query.subject,
        None if node is None else node.id,
        None if deployment is None else deployment.id,
        None if deployments is None else frozenset(deployments),
        audit=caller.principal.may(Permission.ADMINISTER),
    )


async def _start(session: Session, since: str) -> Cursor:
    if since == "now":
        return await newest_cursor(session)
    if not since:
        return await forgotten_cursor(session)
    cursor = Cursor.parse(since)
    await check_cursor_kept(session, cursor)
    return cursor


async def _page(feed: Feed, query: EventQuery, wanted: EventFilter, cursor: Cursor) -> EventsOut:
    deadline = time.monotonic() + query.wait
    async with feed.subscribed() if query.wait else nullcontext():
        while True:
            async with feed.store.read() as session:
                found = await read_events(session, cursor, query.limit, wanted)
                upto = found[-1].cursor if len(found) == query.limit else max(cursor, await newest_cursor(session))
            left = deadline - time.monotonic()
            if found or left <= 0 or feed.closing:
                return EventsOut(items=[EventOut.of(event) for event in found], next=str(upto))
            cursor = upto
            await feed.changed(cursor, left)


class _Stream(StreamingResponse):
    """An endless answer. A client that reads nothing for `STALLED` seconds is let go."""

    def __init__(self, request: Request, feed: Feed, caller: Caller, wanted: EventFilter, cursor: Cursor) -> None:
        self._request, self._feed, self._caller = request, feed, caller
        self._wanted, self._cursor = wanted, cursor
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._told(), media_type=SSE, headers=headers)

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                assert isinstance(chunk, bytes)
                async with asyncio.timeout(STALLED):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _told(self) -> AsyncIterator[bytes]:
        feed, checked = self._feed, time.monotonic()
        async with feed.stream_of(self._caller.principal.name):
            yield _place(self._cursor)
            told = checked
            while not feed.closing:
                try:
                    found, upto = await feed.after(self._cursor)
                except CursorGone:
                    return  # who asks again from there is told why
                now = time.monotonic()
                if now - checked > RECHECK or any(event.kind.startswith(ACCESS) for event in found):
                    checked = now
                    if not await self._still_welcome():
                        return
                lines = [_line(event) for event in found if self._wanted.matches(event)]
                self._cursor = upto
                if lines:
                    yield b"".join(lines)
                elif now - told > KEEP_ALIVE:
                    yield _place(upto)
                if lines or now - told > KEEP_ALIVE:
                    told = now
                if not found:
                    await feed.changed(self._cursor, RECHECK)

    async def _still_welcome(self) -> bool:
        """Whether the token or session holds, and what its owner may see by now."""
        try:
            caller = await authenticated(self._request, self._request.state.credentials)
        except (Unauthenticated, Forbidden):
            return False
        if not caller.principal.may_somewhere(Permission.READ):
            return False
        async with caller.server.store.read() as session:
            visible = (await caller.visibility(session)).deployments()
        self._wanted = replace(
            self._wanted,
            visible=None if visible is None else frozenset(visible),
            audit=caller.principal.may(Permission.ADMINISTER),
        )
        return True


def _line(event: Event) -> bytes:
    return f"id: {event.cursor}\ndata: {EventOut.of(event).model_dump_json()}\n\n".encode()


def _place(cursor: Cursor) -> bytes:
    """A sign of life. It also moves the client's Last-Event-ID on, past events that are not for it."""
    return f": {cursor}\nid: {cursor}\n\n".encode()
