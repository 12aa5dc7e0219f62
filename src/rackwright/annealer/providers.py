"""This server among others: it says that it is there, and has the daemons of its host serve what the database says,
when it starts and whenever one of them came back by itself. Running them is in `provision/daemon.py`."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.provision.daemon import Daemon
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.machines.providers import miss_servers, refresh_providers, server_is_here
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "providers"
PAUSE = 0.5


@dataclass(frozen=True)
class Provided:
    """A daemon, and the roles whose noderoles on this host have it serve."""

    daemon: Daemon
    server_role: str
    database_role: str


class Providers:
    """Runs until cancelled."""

    def __init__(self, store: Store, node_id: int, provided: Sequence[Provided], lease: float = 30.0) -> None:
        """`lease`: seconds after which others do what this server was to do; silent for twice that, it is dead."""
        self._store = store
        self._lease = lease
        self._node_id = node_id
        self._provided = provided
        for one in provided:
            one.daemon.started = lambda one=one: self._came_back(one)
        self._back: asyncio.Queue[Provided] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._be_seen())
            # After a start of this server its daemons do not run, whatever the noderoles say.
            await self._refresh([role for one in self._provided for role in (one.server_role, one.database_role)])
            while True:
                back = await self._back.get()
                await self._refresh([back.server_role, back.database_role])

    async def _be_seen(self) -> None:
        async def look(session: Session) -> None:
            await server_is_here(session, self._node_id)
            for name in await miss_servers(session, 2 * self._lease):
                log.warning("the server on %s is silent; nothing waits for it any more", name)

        while True:
            try:
                await self._store.change(look, actor=ACTOR)
            except DATABASE_TROUBLE as error:
                log.warning("nobody is told that this server is here: %s", first_line(error))
            await asyncio.sleep(self._lease / 4)

    async def _came_back(self, one: Provided) -> None:
        self._back.put_nowait(one)

    async def _refresh(self, roles: Sequence[str]) -> None:
        while True:
            try:
                await self._store.change(lambda session: refresh_providers(session, self._node_id, roles), actor=ACTOR)
            except DATABASE_TROUBLE as error:
                log.warning("the providers are asked to serve a little later: %s", first_line(error))
                await asyncio.sleep(PAUSE)
            else:
                return
