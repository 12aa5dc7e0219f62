"""A script jig with the scripts of one role, for tests: runs them on a node and keeps what was said.

It takes no node that is merely slow for one that is lost: whatever it waits for, it waits for with a test's patience.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
from tests.support.waiting import PATIENCE

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.script import ScriptJig
from rackwright.reach.conversation import LAST_WORDS_SECONDS
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, HostKeyWatch, Target


class Trial:
    """One server's view of one node."""

    def __init__(
        self,
        folder: Path,
        key: asyncssh.SSHKey,
        target: Target,
        *,
        keepalive: float = PATIENCE,
        closing: float = PATIENCE,
        stopping: float = PATIENCE,
        last_words: float = LAST_WORDS_SECONDS,
    ) -> None:
        self.target = target
        self.deadline = PATIENCE
        self.log: list[str] = []
        """The lines of the log."""
        self._line_ended = True
        self.first_seen: list[str] = []
        self.differed: list[str] = []
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._tokens = itertools.count(1)
        watch = HostKeyWatch(self._first_seen, self._differs)
        self.jig = ScriptJig(
            self._scripts,
            self._target,
            Connections(key, watch, deadline=PATIENCE, keepalive=keepalive),
            lambda run: self.deadline,
            closing=closing,
            stopping=stopping,
            last_words=last_words,
        )

    def scripts(self, **scripts: str) -> None:
        """The role's scripts, by name without `.sh`; what was there before goes."""
        for old in self._folder.iterdir():
            old.unlink()
        for name, text in scripts.items():
            (self._folder / f"{name}.sh").write_text(text)

    async def run(
        self, attributes: JsonObject | None = None, token: int | None = None, log: Log | None = None
    ) -> Outcome:
        number = next(self._tokens) if token is None else token
        run = Run(number, 1, 1, "n1.example", "test", "script", "script", attributes or {}, deadline=3600.0)
        return await self.jig.run(run, log or self.write)

    def write(self, text: str) -> None:
        """Take output of a run, in pieces of any size, as lines."""
        lines = text.split("\n")
        if not self._line_ended and self.log:
            self.log[-1] += lines.pop(0)
        self.log += lines if lines and lines[-1] else lines[:-1]
        self._line_ended = text.endswith("\n")

    async def _scripts(self, run: Run) -> list[Path]:
        return sorted(self._folder.glob("*.sh"))

    async def _target(self, node_id: int) -> Target:
        return self.target

    async def _first_seen(self, node_id: int, host_key: str) -> None:
        self.first_seen.append(host_key)

    async def _differs(self, node_id: int, host_key: str) -> None:
        self.differed.append(host_key)


@asynccontextmanager
async def trial(folder: Path, key: asyncssh.SSHKey, target: Target, **seconds: float) -> AsyncIterator[Trial]:
    """A `Trial` that is closed after the block; `seconds` are its times that differ from the patient ones."""
    made = Trial(folder, key, target, **seconds)
    try:
        yield made
    finally:
        await made.jig.close()
