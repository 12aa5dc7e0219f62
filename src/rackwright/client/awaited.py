"""The asynchronous client of the API. How each call is made is in `calls.py`."""

import asyncio
from types import TracebackType
from typing import Any, Self, cast

from rackwright.client import calls
from rackwright.client.access import Access
from rackwright.client.calls import ANSWER_SECONDS, Answer, Call, Pause, Result, RetryPolicy, Steps
from rackwright.client.errors import NoAnswer
from rackwright.client.transport import open_async_http, send_async


class AsyncApiClient:
    """Calls of the API that are awaited. Every method raises an `ApiError` for what is not a success."""

    def __init__(self, access: Access, timeout: float = ANSWER_SECONDS, retry: RetryPolicy | None = None) -> None:
        self.access = access
        self.retry = retry or RetryPolicy()
        self._http = open_async_http(access, timeout, base="")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def run(self, steps: Steps[Result]) -> Result:
        """Carry out calls and pauses in their order; return the result of the steps."""
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._carry_out(step))
        except StopIteration as end:
            return cast("Result", end.value)

    async def _carry_out(self, step: Call | Pause) -> Answer | NoAnswer | None:
        if isinstance(step, Call):
            return await send_async(self._http, self.access, step)
        await asyncio.sleep(step.seconds)
        return None

    async def get(self, path: str, /, **query: Any) -> Any:
        return await self.run(calls.get(self.retry, path, query))

    async def pages(self, path: str, limit: int | None = None, /, **query: Any) -> list[dict[str, Any]]:
        """Read a list from its first page to its last, or its first `limit` items."""
        return await self.run(calls.pages(self.retry, path, limit, query))

    async def post(self, path: str, body: Any = None, /, **query: Any) -> Any:
        return await self.run(calls.post(self.retry, path, body, query))

    async def put(self, path: str, body: Any, *, check_unchanged: bool = True) -> Any:
        """Replace an object. `check_unchanged`: only if nobody changes it meanwhile; it must be readable by itself."""
        return await self.run(calls.put(self.retry, path, body, check_unchanged))

    async def is_ready(self) -> bool:
        """Return whether the server answers and does its work."""
        return await self.run(calls.is_ready())
