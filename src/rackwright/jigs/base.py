"""The one shape of every jig."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rackwright.domain.runs import Outcome, Run

Log = Callable[[str], None]
"""Takes output of a run as it comes, line ends included; the person watching sees it live."""


@runtime_checkable
class PacedLog(Protocol):
    """A log that takes only so much at a time. A jig that hears a node stops listening while it is full."""

    def __call__(self, text: str) -> None: ...

    @property
    def full(self) -> bool: ...

    async def room(self) -> None: ...


def is_full(log: Log) -> bool:
    return isinstance(log, PacedLog) and log.full


async def room_in(log: Log) -> None:
    """Wait until the log is not full."""
    if isinstance(log, PacedLog):
        await log.room()


async def room_or(log: Log, event: asyncio.Event) -> None:
    """Wait until the log is not full, or something makes that unimportant."""
    waiting = [asyncio.create_task(room_in(log)), asyncio.create_task(event.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


@dataclass(frozen=True)
class JigNode:
    """What a jig is told of a node."""

    id: int
    name: str
    address: str | None = None


class Jig(Protocol):
    """Does the work of noderoles. Its node methods keep whatever it knows of nodes up to date; each may be repeated."""

    async def node_create(self, node: JigNode) -> None: ...

    async def node_update(self, node: JigNode) -> None: ...

    async def node_delete(self, node: JigNode) -> None: ...

    async def run(self, run: Run, log: Log) -> Outcome: ...
