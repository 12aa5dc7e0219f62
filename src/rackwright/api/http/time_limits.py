"""HTTP that is not kept waiting: a request has to come in time, and an answer has to be taken.

What takes long because there is much of it goes on: a stream of events, an image of gigabytes over a slow line. What
ends a connection is that the client does nothing: sends half a head, a body a byte at a time, or takes no answer.
"""

import asyncio
import logging
import sys
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from rackwright.api.http.bodies import LARGEST
from rackwright.api.http.connections import ConnectionLimits, RareWarning, Visit

LONGEST_HEAD = 64 * 1024
LONGEST_BODY = 8 * LARGEST
"""Bytes on the wire: a body may come in chunks of one byte, each with five around it."""
SLOWEST_BODY = 1024
"""Bytes a second that a body has to come with, on average."""
STALL_LOOK = 10.0
"""Seconds between two looks at how much of an answer is left."""


class PatientProtocol(HttpToolsProtocol):
    """One connection: uvicorn's own, with an end to every wait for its client."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        visit: Visit,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._visit = visit
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._in_body = False
        self._heads = 0
        """How many requests' heads have been read."""
        self._received = 0
        """Bytes of the present head or body."""
        self._body_began = 0.0
        self._unsent = sys.maxsize
        """Bytes of the last answer that the client had not taken when this was last looked at."""

    # Of the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._visit.end = transport.abort
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._visit.leave()
        self._set_deadline(None)
        self._stop_stall()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        heads, is_first = self._heads, not self._received
        self._received += len(data)
        super().data_received(data)
        if self._heads != heads:
            self._received = len(data) if self._in_body else 0
        elif is_first and not self._in_body and not self._answering:  # it was idle until now
            self._set_deadline(self._limits.request_seconds)
        if self._received > (LONGEST_BODY if self._in_body else LONGEST_HEAD):
            self._give_up()

    # Of requests: the parser says how far they are

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._heads += 1
        self._in_body = True
        self._received = 0
        self._body_began = self.loop.time()
        self._set_deadline(self._limits.request_seconds)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._received = 0
        if self._answering:
            self._set_deadline(None)
            self._visit.work()
        else:  # answered before all of it was there
            self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_body and not self._answering:
            self._await_head()

    def _await_head(self) -> None:
        """A new connection is there to be used at once. One that was used may be idle for as long as the server keeps
        such: until the next head begins."""
        self._visit.wait()
        self._unsent = sys.maxsize
        is_idle = self._heads and not self._received
        self._set_deadline(self.timeout_keep_alive if is_idle else self._limits.request_seconds)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        """The time is over. A body that comes fast enough for its size has more, and so has the end of an answer that
        is still on its way."""
        left = self._time_left()
        if left > 0:
            self._set_deadline(left)
        else:
            self._give_up()

    def _time_left(self) -> float:
        if self._in_body:
            allowed = self._limits.request_seconds + self._received / SLOWEST_BODY
            return self._body_began + allowed - self.loop.time()
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        return self._limits.stall_seconds if 0 < self._unsent < before else 0.0

    # Of answers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall(self.transport.get_write_buffer_size(), self.loop.time())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()
        if self._answering:
            self._visit.work()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_stall(self, unsent: int, since: float) -> None:
        soon = min(STALL_LOOK, self._limits.stall_seconds)
        self._stall = self.loop.call_later(soon, self._look_for_progress, unsent, since)

    def _look_for_progress(self, before: int, since: float) -> None:
        """A client that takes nothing is the first to go when there are too many, and goes in any case after a time."""
        unsent, now = self.transport.get_write_buffer_size(), self.loop.time()
        if unsent < before:
            self._visit.work()
            self._watch_stall(unsent, now)
        elif now - since >= self._limits.stall_seconds:
            self._give_up()
        else:
            self._visit.wait()
            self._watch_stall(unsent, since)

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _give_up(self) -> None:
        self.transport.abort()


class OncePerMinute(logging.Filter):
    """Lets each of uvicorn's warnings about clients through once a minute: strangers decide how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        if record.created < self._said.get(record.msg, 0.0) + RareWarning.EVERY:
            return False
        self._said[record.msg] = record.created
        return True


class SameFaultOncePerMinute(logging.Filter):
    """Lets the traceback of an unforeseen error through once a minute for each place in the code that it comes from.

    A request that breaks something can be repeated by whoever sent it, and each traceback is some kilobytes of log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        place = (record.name, *_origin_of(error))
        if record.created < self._said.get(place, 0.0) + RareWarning.EVERY:
            return False
        self._said[place] = record.created
        return True


def _origin_of(error: BaseException) -> tuple[str, int]:
    """The file and the line that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


QUIET = OncePerMinute()
SAME_FAULT = SameFaultOncePerMinute()
