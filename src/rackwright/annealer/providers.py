"""This server among others: it says that it is there, and has the daemons of its host serve what the database says,
when it starts and whenever one of them came back by itself. Running them is in `provision/daemon.py`."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.annealer.loop import BACK_OFF, Loop
from rackwright.provision.daemon import Daemon
from rackwright.store.db.session import Session
from rackwright.store.machines.providers import miss_servers, refresh_providers, server_is_here
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "providers"


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
            one.daemon.on_restart = lambda one=one: self._came_back(one)
        self._due: list[str] = []
        """The roles that are to run again on this host."""
        self._refreshing = Loop(store, purpose="have the providers of this host serve", back_off=BACK_OFF)

    async def run(self) -> None:
        # After a start of this server its daemons do not run, whatever the noderoles say.
        self._due = [role for one in self._provided for role in (one.server_role, one.database_role)]
        saying = Loop(self._store, tick=self._lease / 4, purpose="say that this server is here")
        async with asyncio.TaskGroup() as group:
            group.create_task(saying.run(self._be_seen))
            await self._refreshing.run(self._refresh)

    async def _be_seen(self) -> None:
        async def look(session: Session) -> None:
            await server_is_here(session, self._node_id)
            for name in await miss_servers(session, 2 * self._lease):
                log.warning("the server on %s is silent; nothing waits for it any more", name)

        await self._store.change(look, actor=ACTOR)

    async def _came_back(self, one: Provided) -> None:
        self._due += [one.server_role, one.database_role]
        self._refreshing.wake()

    async def _refresh(self) -> None:
        """Have the roles that are due run again; those that become due meanwhile stay so."""
        roles = list(self._due)
        if roles:
            await self._store.change(lambda session: refresh_providers(session, self._node_id, roles), actor=ACTOR)
            del self._due[: len(roles)]
