"""The one shape of every jig."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rackwright.domain.runs import Outcome, Run

Log = Callable[[str], None]
"""Takes output of a run as it comes; the person watching sees it live."""


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
