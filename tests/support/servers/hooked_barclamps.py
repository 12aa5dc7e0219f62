"""Barclamps with hooks, made for one test: a `roles.py` that notes its calls in a file, and a dispatcher."""

import asyncio
import contextlib
import json
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.rack import Rack
from tests.support.waiting import PATIENCE

from rackwright.annealer.hooks import HookDispatcher, HookPace
from rackwright.annealer.role_files import RoleFiles
from rackwright.annealer.role_workers import RoleWorkers
from rackwright.annealer.veto import VetoedChanges
from rackwright.barclamps.loader import load_folder
from rackwright.jigs.base import Jig
from rackwright.jigs.noop import NoopJig
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.session import Session
from rackwright.store.hooks.hook_queue import FAILED_SQL, FailingHookCall, select_calls

PRELUDE = """
import json, os, time
from dataclasses import asdict
from pathlib import Path
from rackwright.domain.hooks import *
from rackwright.domain.runs import Outcome

NOTES = Path({notes!r})

def note(hook, view):
    with NOTES.open("a") as file:
        file.write(json.dumps([hook, asdict(view)]) + "\\n")
"""


async def failing_calls(session: Session) -> list[FailingHookCall]:
    """Return the calls that failed, the newest first, as the API selects them."""
    return await select_calls(session, f"WHERE {FAILED_SQL} ORDER BY id DESC")


class Hooked:
    """A rack whose barclamp `hooked` has code."""

    def __init__(self, rack: Rack, folder: Path, pace: HookPace, jigs: dict[str, Jig] | None = None) -> None:
        self.rack = rack
        self.folder = folder / "hooked"
        self.notes = folder / "notes"
        self.workers = RoleWorkers(start_time=PATIENCE)
        self.files = RoleFiles(rack.store, folder / "home")
        self.dispatcher = HookDispatcher(
            rack.store, self.workers, self.files, jigs or {"noop": NoopJig()}, "test", pace
        )
        self.judge = VetoedChanges(rack.store, self.workers, self.files)

    def write(self, roles: str, code: str) -> None:
        """The barclamp's two files; `roles` is YAML below the key `roles:`, indented by two."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "barclamp.yml").write_text(
            f"name: hooked\nroles:\n{textwrap.indent(textwrap.dedent(roles), '  ')}"
        )
        (self.folder / "roles.py").write_text(PRELUDE.format(notes=str(self.notes)) + textwrap.dedent(code))

    async def load(self, roles: str, code: str) -> None:
        self.write(roles, code)
        loaded = await asyncio.to_thread(load_folder, self.folder)
        await self.rack.do(lambda session: import_barclamps(session, [loaded]))

    def noted(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls that were made, in order: (hook, what it got)."""
        if not self.notes.exists():
            return []
        return [(hook, view) for hook, view in map(json.loads, self.notes.read_text().splitlines())]

    def noted_names(self) -> list[str]:
        return [hook for hook, _ in self.noted()]

    async def deliver(self) -> list[str]:
        """Make all calls that can be made now; what went wrong."""
        return [one.error for one in await self.dispatcher.deliver_all() if one.error]

    async def waiting(self) -> list[tuple[object, ...]]:
        return await self.rack.rows(
            "SELECT handler, hook, state FROM hook_calls WHERE kind = 'role' AND state <> 'failed' ORDER BY id"
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[HookDispatcher]:
        """The dispatcher at work."""
        task = asyncio.create_task(self.dispatcher.run())
        try:
            yield self.dispatcher
        finally:
            self.dispatcher.stop()
            await task
