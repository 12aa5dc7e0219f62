"""The log that a run's output goes to, and how to wait while that log is full."""

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

Log = Callable[[str], None]
"""Takes output of a run as it comes, line ends included; the person watching sees it live."""


@runtime_checkable
class PacedLog(Protocol):
    """A log that takes only so much at a time. A jig that reads from a node stops reading while the log is full."""

    def __call__(self, text: str) -> None: ...

    @property
    def full(self) -> bool: ...

    async def room(self) -> None: ...


def is_full(log: Log) -> bool:
    return isinstance(log, PacedLog) and log.full


async def wait_for_room(log: Log) -> None:
    """Wait until the log is not full."""
    if isinstance(log, PacedLog):
        await log.room()


async def wait_for_room_or(log: Log, event: asyncio.Event) -> None:
    """Wait until the log is not full, or until `event` makes that unimportant."""
    waiting = [asyncio.create_task(wait_for_room(log)), asyncio.create_task(event.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
