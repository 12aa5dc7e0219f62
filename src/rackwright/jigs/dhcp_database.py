"""The jig of `provisioner-dhcp-database`: publish what all nodes boot, whole, read it back, record the generation."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log

Entries = Callable[[], Awaitable[tuple[int, Sequence[JsonObject]]]]
"""(generation, one entry a node): all that is to be served now."""


class BootProvider(Protocol):
    """A DHCP server, or what stands for one."""

    async def publish(self, generation: int, entries: Sequence[JsonObject]) -> None:
        """Serve just this from now on."""
        ...

    async def served(self) -> tuple[int, Sequence[JsonObject]]:
        """What is served now, asked of the server itself."""
        ...


class DhcpDatabaseJig:
    def __init__(self, entries: Entries, provider: BootProvider) -> None:
        self._entries = entries
        self._provider = provider

    async def node_create(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def node_update(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def node_delete(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def run(self, run: Run, log: Log) -> Outcome:
        generation, entries = await self._entries()
        await self._provider.publish(generation, entries)
        served, found = await self._provider.served()
        if served != generation or list(found) != list(entries):
            return Outcome.failure(
                f"Generation {generation} was published, but {served} is served. Is the server well?"
            )
        log(f"generation {generation}: {len(entries)} nodes\n")
        return Outcome.success({"generation": generation})


class HeldEntries:
    """A boot provider that holds what it was given and serves nobody: `/boot` answers from the database anyway."""

    def __init__(self) -> None:
        self._served: tuple[int, Sequence[JsonObject]] = (0, ())

    async def publish(self, generation: int, entries: Sequence[JsonObject]) -> None:
        self._served = (generation, list(entries))

    async def served(self) -> tuple[int, Sequence[JsonObject]]:
        return self._served
