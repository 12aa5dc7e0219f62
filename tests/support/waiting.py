"""Waiting in tests: for a condition, and never for a time.

A wait ends when its condition holds, so patience costs nothing where all is well. It is given up only after a time that
a machine ten times slower than a laptop would keep, so a wait that is given up is a defect and not a busy machine.
`RACKWRIGHT_TEST_PATIENCE=0.1` gives up sooner, for who works on a test that fails; a larger number waits longer.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

PATIENCE = 300.0 * float(os.environ.get("RACKWRIGHT_TEST_PATIENCE", "1"))
"""Seconds after which a test gives a wait up. What takes minutes on a quiet machine (an install) waits a multiple."""

Found = TypeVar("Found")
What = str | Callable[[], str]
"""The condition in words, or what tells how things are instead."""
AsyncWhat = str | Callable[[], str | Awaitable[str]]
"""Likewise, for `until`: what tells it may be a coroutine function."""


def wait_until(ask: Callable[[], Found], what: What, patience: float = PATIENCE, every: float = 0.02) -> Found:
    """Ask until the answer is true, and return it; give up with an error that says what was awaited."""
    end = time.monotonic() + patience
    while not (answer := ask()):
        if time.monotonic() >= end:
            raise AssertionError(_given_up(what if isinstance(what, str) else what(), patience, answer))
        time.sleep(every)
    return answer


@overload
async def until(
    ask: Callable[[], Awaitable[Found]], what: AsyncWhat, patience: float = PATIENCE, every: float = 0.02
) -> Found: ...
@overload
async def until(
    ask: Callable[[], Found], what: AsyncWhat, patience: float = PATIENCE, every: float = 0.02
) -> Found: ...
async def until(ask: Callable[[], Any], what: AsyncWhat, patience: float = PATIENCE, every: float = 0.02) -> Any:
    """`wait_until` for what becomes true only while the event loop runs; `ask` may be a coroutine function."""
    end = time.monotonic() + patience
    while not (answer := await _answered(ask())):
        if time.monotonic() >= end:
            raise AssertionError(
                _given_up(what if isinstance(what, str) else await _answered(what()), patience, answer)
            )
        await asyncio.sleep(every)
    return answer


async def _answered(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _given_up(what: str, patience: float, last: object) -> str:
    seen = "" if last is None or last is False else f" (the last answer was {last!r})"
    return f"not within {patience:g} s{seen}: {what}"
