"""Supervision of a server's background work: a part that breaks is started again, and no break ends the process.

A part breaks by a defect, or by hostile input that got that far. The error is logged with its traceback, counted, and
shown by /readyz and /metrics until the part has run for a while. The pause before a restart doubles with every break.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
RECOVERED_AFTER = 60.0
"""Seconds that a restarted part must run before it counts as sound again, and its next pause is the first one again."""


@dataclass
class Part:
    """One piece of background work, how often it was restarted, and why."""

    name: str
    restarts: int = 0
    error: str = ""
    """Why it broke last; empty while it is sound."""


class Supervisor:
    """Runs parts, each until it returns or is cancelled."""

    def __init__(
        self,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        recovered_after: float = RECOVERED_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.parts: dict[str, Part] = {}
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._recovered_after = recovered_after
        self._clock = clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Start no part again. The parts that run are told to end by the code that started them."""
        self._stopping.set()

    @property
    def broken(self) -> list[Part]:
        """The parts that broke and have not yet run long enough since."""
        return [part for part in self.parts.values() if part.error]

    async def keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part. Whatever error it raises, it is started again after a pause."""
        part = self.parts.setdefault(name, Part(name))
        pause = self._first_pause
        while True:
            began = self._clock()
            recovery = asyncio.get_running_loop().call_later(self._recovered_after, _recover, part)
            try:
                await run()
                return
            except Exception as error:
                if self._clock() - began >= self._recovered_after:
                    pause = self._first_pause
                part.error = _describe(error)
                part.restarts += 1
                log.exception("%s broke and starts again in %g s; please report this", name, pause)
            finally:
                recovery.cancel()
            if await self._is_stopped_within(pause):
                return
            pause = min(2 * pause, self._longest_pause)

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False


def _recover(part: Part) -> None:
    part.error = ""


def _describe(error: Exception) -> str:
    """Return the first cause of an error, in one line: a group of errors says nothing by itself."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}"[:500]
