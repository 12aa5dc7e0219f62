"""The blocking client of the API. How each call is made is in `calls.py`."""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, cast

from rackwright.client import calls
from rackwright.client.access import Access
from rackwright.client.calls import ANSWER_SECONDS, Answer, Call, Pause, Result, RetryPolicy, Steps
from rackwright.client.errors import NoAnswer
from rackwright.client.events import EventReader, StreamEvent


class ApiClient:
    """Calls of the API that block. Every method raises an `ApiError` for what is not a success."""

    def __init__(self, access: Access, timeout: float = ANSWER_SECONDS, retry: RetryPolicy | None = None) -> None:
        from rackwright.client import transport

        self.access = access
        self.retry = retry or RetryPolicy()
        self._transport = transport
        self._http = transport.open_http(access, timeout, base="")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def run(self, steps: Steps[Result]) -> Result:
        """Carry out calls and pauses in their order; return the result of the steps."""
        try:
            step = next(steps)
            while True:
                step = steps.send(self._carry_out(step))
        except StopIteration as end:
            return cast("Result", end.value)

    def _carry_out(self, step: Call | Pause) -> Answer | NoAnswer | None:
        if isinstance(step, Call):
            return self._transport.send(self._http, self.access, step)
        time.sleep(step.seconds)
        return None

    def get(self, path: str, /, **query: Any) -> Any:
        return self.run(calls.get(self.retry, path, query))

    def pages(self, path: str, limit: int | None = None, /, **query: Any) -> list[dict[str, Any]]:
        """Read a list from its first page to its last, or its first `limit` items."""
        return self.run(calls.pages(self.retry, path, limit, query))

    def post(self, path: str, body: Any = None, /, **query: Any) -> Any:
        return self.run(calls.post(self.retry, path, body, query))

    def merge(self, path: str, changes: Mapping[str, Any]) -> Any:
        """Change some fields of an object; if somebody else changes the object meanwhile, nothing is done."""
        return self.run(calls.merge(self.retry, path, changes))

    def put(self, path: str, body: Any, *, check_unchanged: bool = True) -> Any:
        """Replace an object. `check_unchanged`: only if nobody changes it meanwhile; it must be readable by itself."""
        return self.run(calls.put(self.retry, path, body, check_unchanged))

    def delete(self, path: str, *, check_unchanged: bool = True) -> Any:
        """Delete an object. `check_unchanged`: only if nobody changes it meanwhile; it must be readable by itself."""
        return self.run(calls.delete(self.retry, path, check_unchanged))

    def text(self, path: str, **query: Any) -> tuple[str, Mapping[str, str]]:
        """Read text; return it with the headers of the answer."""
        answer = self.run(calls.send_with_retries(calls.make_call("GET", path, query=query), self.retry))
        return answer.text, answer.headers

    def stream(self, path: str, last: str | None = None, **query: Any) -> Iterator[StreamEvent]:
        """Give server-sent events after the one with the id `last`, until the server ends the stream or goes away."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        call = calls.make_call("GET", path, None, headers, query)
        reader = EventReader()
        for line in self._transport.stream_lines(self._http, call, ANSWER_SECONDS):
            if (event := reader.read_line(line)) is not None:
                yield event

    def is_ready(self) -> bool:
        """Return whether the server answers and does its work."""
        return self.run(calls.is_ready())
