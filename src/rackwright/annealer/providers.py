"""Keep this server's heartbeat in the database, and have the daemons of its host (DHCP, DNS) serve what that says.

The daemons' roles are run when the server starts, and whenever a daemon was restarted. Running daemons is in
`provision/daemon.py`.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.annealer.loop import BACK_OFF, Loop
from rackwright.provision.daemon import Daemon
from rackwright.store.db.session import Session
from rackwright.store.machines.providers import mark_silent_servers, record_server_heartbeat, refresh_providers
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "providers"


@dataclass(frozen=True)
class ProviderDaemon:
    """A daemon, and the roles whose noderoles on this host make it serve."""

    daemon: Daemon
    server_role: str
    database_role: str


class ProviderRefresher:
    """Sends heartbeats, and runs the providers' roles again when they are due, until cancelled."""

    def __init__(self, store: Store, node_id: int, daemons: Sequence[ProviderDaemon], lease: float = 30.0) -> None:
        """`lease`: seconds after which others do what this server had claimed; silent for twice that, it is dead."""
        self._store = store
        self._lease = lease
        self._node_id = node_id
        self._daemons = daemons
        for provider in daemons:
            provider.daemon.on_restart = lambda provider=provider: self._daemon_restarted(provider)
        self._due: list[str] = []
        """The roles that are to run again on this host."""
        self._refreshing = Loop(store, purpose="have the providers of this host serve", back_off=BACK_OFF)

    async def run(self) -> None:
        # After a start of this server its daemons do not run, whatever the noderoles say.
        self._due = [role for provider in self._daemons for role in (provider.server_role, provider.database_role)]
        heartbeats = Loop(self._store, tick=self._lease / 4, purpose="say that this server is here")
        async with asyncio.TaskGroup() as group:
            group.create_task(heartbeats.run(self._send_heartbeat))
            await self._refreshing.run(self._refresh)

    async def _send_heartbeat(self) -> None:
        async def beat(session: Session) -> None:
            await record_server_heartbeat(session, self._node_id)
            for name in await mark_silent_servers(session, 2 * self._lease):
                log.warning("the server on %s is silent; nothing waits for it any more", name)

        await self._store.change(beat, actor=ACTOR)

    async def _daemon_restarted(self, provider: ProviderDaemon) -> None:
        self._due += [provider.server_role, provider.database_role]
        self._refreshing.wake()

    async def _refresh(self) -> None:
        """Run the roles again that are due; those that become due meanwhile stay so."""
        roles = list(self._due)
        if roles:
            await self._store.change(lambda session: refresh_providers(session, self._node_id, roles), actor=ACTOR)
            del self._due[: len(roles)]
