"""/api/v2/events: what happens, in pages or as a stream (SSE), from a cursor on, without gaps or doubles.

A cursor is good until what follows it is no longer kept, which is a 410; it is good on any server of one database.
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
from rackwright.api.context import Caller, Forbidden, ScopedReader, Unauthenticated, authenticate
from rackwright.api.event_feed import EventFeed
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
KEEP_ALIVE_SECONDS = 15.0
RECHECK_SECONDS = 5.0
"""Seconds after which a stream checks again whether its token is valid; at once when anybody's access changed."""
STALL_SECONDS = 60.0
"""Seconds after which a client that reads nothing is cut off."""
ACCESS_EVENTS = ("user.", "grant.", "token.revoked", "session.ended")
"""How the kinds of events begin that change somebody's access."""

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
    feed: EventFeed = request.app.state.feed
    async with caller.read() as (session, visible):
        event_filter = await _event_filter(session, visible, caller, query)
        cursor = await _start_cursor(session, last_event_id or query.since)
    if SSE in request.headers.get("accept", ""):
        feed.check_stream_limit(caller.principal.name)
        return _EventStream(request, feed, caller, event_filter, cursor)
    if not query.wait:
        return await _read_page(feed, query, event_filter, cursor)
    feed.check_stream_limit(caller.principal.name)
    with feed.count_stream(caller.principal.name):
        return await _read_page(feed, query, event_filter, cursor)


async def _event_filter(session: Session, visible: RequestVisibility, caller: Caller, query: EventQuery) -> EventFilter:
    """Return the filter of a query, kept to the events that the caller may see."""
    node = None if query.node is None else await get_node(session, query.node, visible)
    deployment = None if query.deployment is None else await get_deployment(session, query.deployment, visible)
    deployments = visible.deployments()  # for the filter, which is applied to later events too
    return EventFilter(
        tuple(query.kind),
        query.subject,
        None if node is None else node.id,
        None if deployment is None else deployment.id,
        None if deployments is None else frozenset(deployments),
        audit=caller.principal.may(Permission.ADMINISTER),
    )


async def _start_cursor(session: Session, since: str) -> Cursor:
    """Return the cursor that `since` names: a cursor, `now`, or nothing for the oldest event that is kept."""
    if since == "now":
        return await newest_cursor(session)
    if not since:
        return await forgotten_cursor(session)
    cursor = Cursor.parse(since)
    await check_cursor_kept(session, cursor)
    return cursor


async def _read_page(feed: EventFeed, query: EventQuery, event_filter: EventFilter, cursor: Cursor) -> EventsOut:
    """Return a page of events; wait for the first as long as the query says."""
    deadline = time.monotonic() + query.wait
    async with feed.subscribed() if query.wait else nullcontext():
        while True:
            async with feed.store.read() as session:
                events = await read_events(session, cursor, query.limit, event_filter)
                upto = events[-1].cursor if len(events) == query.limit else max(cursor, await newest_cursor(session))
            seconds_left = deadline - time.monotonic()
            if events or seconds_left <= 0 or feed.closing:
                return EventsOut(items=[EventOut.of(event) for event in events], next=str(upto))
            cursor = upto
            await feed.wait_for_events(cursor, seconds_left)


class _EventStream(StreamingResponse):
    """An endless response with events. A client that reads nothing for `STALL_SECONDS` is cut off."""

    def __init__(
        self, request: Request, feed: EventFeed, caller: Caller, event_filter: EventFilter, cursor: Cursor
    ) -> None:
        self._request, self._feed, self._caller = request, feed, caller
        self._filter, self._cursor = event_filter, cursor
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._chunks(), media_type=SSE, headers=headers)

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                assert isinstance(chunk, bytes)
                async with asyncio.timeout(STALL_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield what is sent: events, and the cursor now and then when there are none."""
        feed, checked_at = self._feed, time.monotonic()
        async with feed.stream_for(self._caller.principal.name):
            yield _sse_cursor(self._cursor)
            sent_at = checked_at
            while not feed.closing:
                try:
                    events, upto = await feed.read_after(self._cursor)
                except CursorGone:
                    return  # a client that asks again from there is told why
                now = time.monotonic()
                if now - checked_at > RECHECK_SECONDS or any(event.kind.startswith(ACCESS_EVENTS) for event in events):
                    checked_at = now
                    if not await self._refresh_access():
                        return
                messages = [_sse_event(event) for event in events if self._filter.matches(event)]
                self._cursor = upto
                if messages:
                    yield b"".join(messages)
                elif now - sent_at > KEEP_ALIVE_SECONDS:
                    yield _sse_cursor(upto)
                if messages or now - sent_at > KEEP_ALIVE_SECONDS:
                    sent_at = now
                if not events:
                    await feed.wait_for_events(self._cursor, RECHECK_SECONDS)

    async def _refresh_access(self) -> bool:
        """Return whether the token or session is still valid; keep the stream to what its owner may see by now."""
        try:
            caller = await authenticate(self._request, self._request.state.credentials)
        except (Unauthenticated, Forbidden):
            return False
        if not caller.principal.may_somewhere(Permission.READ):
            return False
        async with caller.server.store.read() as session:
            visible = (await caller.visibility(session)).deployments()
        self._filter = replace(
            self._filter,
            visible=None if visible is None else frozenset(visible),
            audit=caller.principal.may(Permission.ADMINISTER),
        )
        return True


def _sse_event(event: Event) -> bytes:
    return f"id: {event.cursor}\ndata: {EventOut.of(event).model_dump_json()}\n\n".encode()


def _sse_cursor(cursor: Cursor) -> bytes:
    """Return a sign of life. It also moves the client's Last-Event-ID on, past events that are not for the client."""
    return f": {cursor}\nid: {cursor}\n\n".encode()
