"""The logs of running runs: collected in memory, written to the store several times a second."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from rackwright.domain.foreign import storable_text
from rackwright.store.run_life import append_logs
from rackwright.store.session import DATABASE_TROUBLE, Store, first_line

log = logging.getLogger(__name__)

BUFFER_LIMIT = 4 * 1024 * 1024
"""Characters kept while the database is away; beyond it the oldest go."""


class RunLogs:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._chunks: deque[tuple[int, str]] = deque()
        self._size = 0

    def writer(self, run_id: int) -> Callable[[str], None]:
        """Where a jig writes the output of one run."""

        def write(text: str) -> None:
            text = storable_text(text)
            if text:
                self._chunks.append((run_id, text))
                self._size += len(text)
                while self._size > BUFFER_LIMIT:
                    self._size -= len(self._chunks.popleft()[1])

        return write

    async def flush(self) -> None:
        chunks, self._chunks, self._size = self._chunks, deque(), 0
        if not chunks:
            return
        try:
            await self._store.change(lambda session: append_logs(session, _joined(chunks)), actor="annealer")
        except DATABASE_TROUBLE as error:
            log.warning("cannot write logs of runs yet: %s", first_line(error))
            self._chunks = chunks + self._chunks
            self._size += sum(len(text) for _, text in chunks)

    async def flush_for_ever(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await self.flush()


def _joined(chunks: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """One chunk a run, in the order of what came first."""
    texts: dict[int, list[str]] = {}
    for id, text in chunks:
        texts.setdefault(id, []).append(text)
    return [(id, "".join(parts)) for id, parts in texts.items()]
