"""HTTP connections with time limits: a request has to arrive in time, and its response has to be taken.

What takes long because there is much of it goes on: a stream of events, an image of gigabytes over a slow line. A
connection is ended when its client does nothing: sends half a head, a body a byte at a time, or takes no response.
"""

import asyncio
import logging
import sys
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from rackwright.api.http.bodies import LARGEST_BODY
from rackwright.api.http.connections import ConnectionLimits, TrackedConnection
from rackwright.rare_warning import RareWarning

LONGEST_HEAD = 64 * 1024
LONGEST_BODY = 8 * LARGEST_BODY
"""Bytes on the wire: a body may come in chunks of one byte, each with five around it."""
SLOWEST_BODY = 1024
"""Bytes a second that a body has to come with, on average."""
STALL_CHECK_SECONDS = 10.0
"""Seconds between two looks at how much of a response is unsent."""


class TimeLimitedProtocol(HttpToolsProtocol):
    """One connection: uvicorn's own protocol, with an end to every wait for the client."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        tracked: TrackedConnection,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._tracked = tracked
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
        """Bytes of the last response that the client had not taken when that was last looked at."""

    # --- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._tracked.end = transport.abort
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tracked.mark_ended()
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
        elif is_first and not self._in_body and not self._is_answering:  # it was idle until now
            self._set_deadline(self._limits.request_seconds)
        if self._received > (LONGEST_BODY if self._in_body else LONGEST_HEAD):
            self._give_up()

    # --- requests: the parser calls these as it gets on

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
        if self._is_answering:
            self._set_deadline(None)
            self._tracked.mark_working()
        else:  # answered before all of it was there
            self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_body and not self._is_answering:
            self._await_head()

    def _await_head(self) -> None:
        """Set the deadline for the next request's head.

        A new connection has to be used at once. One that was used may be idle for as long as the server keeps such
        connections, until the next head begins.
        """
        self._tracked.mark_waiting()
        self._unsent = sys.maxsize
        is_idle = self._heads and not self._received
        self._set_deadline(self.timeout_keep_alive if is_idle else self._limits.request_seconds)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._reach_deadline)

    def _reach_deadline(self) -> None:
        """End the connection, unless it has time left.

        A body that comes fast enough for its size has more time, and so has the end of a response that is still on its
        way.
        """
        left = self._time_left()
        if left > 0:
            self._set_deadline(left)
        else:
            self._give_up()

    def _time_left(self) -> float:
        """Return the seconds that the client still has; 0 or less: none."""
        if self._in_body:
            allowed = self._limits.request_seconds + self._received / SLOWEST_BODY
            return self._body_began + allowed - self.loop.time()
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        return self._limits.stall_seconds if 0 < self._unsent < before else 0.0

    # --- responses

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall(self.transport.get_write_buffer_size(), self.loop.time())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()
        if self._is_answering:
            self._tracked.mark_working()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_stall(self, unsent: int, since: float) -> None:
        delay = min(STALL_CHECK_SECONDS, self._limits.stall_seconds)
        self._stall = self.loop.call_later(delay, self._check_progress, unsent, since)

    def _check_progress(self, before: int, since: float) -> None:
        """End the connection if its client took nothing of the response for too long.

        Until then, such a client is the first to be cut off when there are too many connections.
        """
        unsent, now = self.transport.get_write_buffer_size(), self.loop.time()
        if unsent < before:
            self._tracked.mark_working()
            self._watch_stall(unsent, now)
        elif now - since >= self._limits.stall_seconds:
            self._give_up()
        else:
            self._tracked.mark_waiting()
            self._watch_stall(unsent, since)

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _give_up(self) -> None:
        self.transport.abort()


class OncePerMinute(logging.Filter):
    """A log filter that lets each of uvicorn's warnings about clients through once a minute.

    Clients decide how many such warnings there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        if record.created < self._last_logged.get(record.msg, 0.0) + RareWarning.EVERY:
            return False
        self._last_logged[record.msg] = record.created
        return True


class SameFaultOncePerMinute(logging.Filter):
    """A log filter that lets a traceback through once a minute for each line of code that raised it.

    It is for unforeseen errors: a request that breaks something can be sent again and again, and each traceback is some
    kilobytes of log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[tuple[str, str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        origin = (record.name, *_origin_of(error))
        if record.created < self._last_logged.get(origin, 0.0) + RareWarning.EVERY:
            return False
        self._last_logged[origin] = record.created
        return True


def _origin_of(error: BaseException) -> tuple[str, int]:
    """Return the file and the line that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


CLIENT_WARNING_FILTER = OncePerMinute()
TRACEBACK_FILTER = SameFaultOncePerMinute()
