"""The client of the API that blocks. What it does is in `calls.py`."""

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, cast

from rackwright.client import calls
from rackwright.client.access import Access
from rackwright.client.calls import ANSWER_SECONDS, Answer, Call, Got, Patience, Pause, Steps
from rackwright.client.errors import NoAnswer
from rackwright.client.events import EventReader, StreamEvent


class ApiClient:
    """Calls of the API that block. Every method raises an `ApiError` for what is not a success."""

    def __init__(self, access: Access, timeout: float = ANSWER_SECONDS, patience: Patience | None = None) -> None:
        from rackwright.client import transport

        self.access = access
        self.patience = patience or Patience()
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

    def run(self, steps: Steps[Got]) -> Got:
        """Carry out calls and pauses in their order; return what comes of them."""
        try:
            step = next(steps)
            while True:
                step = steps.send(self._carry_out(step))
        except StopIteration as end:
            return cast("Got", end.value)

    def _carry_out(self, step: Call | Pause) -> Answer | NoAnswer | None:
        if isinstance(step, Call):
            return self._transport.send(self._http, self.access, step)
        time.sleep(step.seconds)
        return None

    def get(self, path: str, /, **query: Any) -> Any:
        return self.run(calls.get(self.patience, path, query))

    def pages(self, path: str, limit: int | None = None, /, **query: Any) -> list[dict[str, Any]]:
        """Read a list from its first page to its last, or so many of its items."""
        return self.run(calls.pages(self.patience, path, limit, query))

    def post(self, path: str, body: Any = None, /, **query: Any) -> Any:
        return self.run(calls.post(self.patience, path, body, query))

    def merge(self, path: str, changes: Mapping[str, Any]) -> Any:
        """Change an object as it is now: if somebody else does so meanwhile, nothing is done."""
        return self.run(calls.merge(self.patience, path, changes))

    def put(self, path: str, body: Any, *, tagged: bool = True) -> Any:
        """Replace an object. `tagged`: it can be read by itself and must be as it is now."""
        return self.run(calls.put(self.patience, path, body, tagged))

    def delete(self, path: str, *, tagged: bool = True) -> Any:
        """Take an object away. `tagged`: it can be read by itself and must be as it is now."""
        return self.run(calls.delete(self.patience, path, tagged))

    def text(self, path: str, **query: Any) -> tuple[str, Mapping[str, str]]:
        """Read text; return it with the headers of the answer."""
        answer = self.run(calls.exchange(calls.request("GET", path, query=query), self.patience))
        return answer.text, answer.headers

    def stream(self, path: str, last: str | None = None, **query: Any) -> Iterator[StreamEvent]:
        """Give server-sent events from `last` on. It ends when the server ends it or goes away."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        call = calls.request("GET", path, None, headers, query)
        reader = EventReader()
        for line in self._transport.stream_lines(self._http, call, ANSWER_SECONDS):
            if (event := reader.read_line(line)) is not None:
                yield event

    def is_ready(self) -> bool:
        """Return whether the server answers and does its work."""
        return self.run(calls.is_ready())
