"""The client of the API that is awaited. What it does is in `calls.py`."""

import asyncio
from types import TracebackType
from typing import Any, Self, cast

from rackwright.client import calls
from rackwright.client.access import Access
from rackwright.client.calls import ANSWER_SECONDS, Answer, Call, Got, Patience, Pause, Steps
from rackwright.client.errors import NoAnswer
from rackwright.client.transport import open_async_http, send_async


class AsyncApiClient:
    """Calls of the API that are awaited. Every method raises an `ApiError` for what is not a success."""

    def __init__(self, access: Access, timeout: float = ANSWER_SECONDS, patience: Patience | None = None) -> None:
        self.access = access
        self.patience = patience or Patience()
        self._http = open_async_http(access, timeout, base="")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def run(self, steps: Steps[Got]) -> Got:
        """Carry out calls and pauses in their order; return what comes of them."""
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._carry_out(step))
        except StopIteration as end:
            return cast("Got", end.value)

    async def _carry_out(self, step: Call | Pause) -> Answer | NoAnswer | None:
        if isinstance(step, Call):
            return await send_async(self._http, self.access, step)
        await asyncio.sleep(step.seconds)
        return None

    async def get(self, path: str, /, **query: Any) -> Any:
        return await self.run(calls.get(self.patience, path, query))

    async def pages(self, path: str, limit: int | None = None, /, **query: Any) -> list[dict[str, Any]]:
        """Read a list from its first page to its last, or so many of its items."""
        return await self.run(calls.pages(self.patience, path, limit, query))

    async def post(self, path: str, body: Any = None, /, **query: Any) -> Any:
        return await self.run(calls.post(self.patience, path, body, query))

    async def put(self, path: str, body: Any, *, tagged: bool = True) -> Any:
        """Replace an object. `tagged`: it can be read by itself and must be as it is now."""
        return await self.run(calls.put(self.patience, path, body, tagged))

    async def is_ready(self) -> bool:
        """Return whether the server answers and does its work."""
        return await self.run(calls.is_ready())
