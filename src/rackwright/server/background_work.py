"""What a server does by itself, without a request: annealing, hooks, installs, webhooks, retention and the like.

Each of them is a task that is started again if it breaks, while the server goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rackwright.annealer.mesh_follower import MeshFollower
from rackwright.annealer.power_saving import PowerSaver
from rackwright.annealer.silent_machines import MachineWatch
from rackwright.api.context import Server
from rackwright.api.webhook_sender import WebhookSender
from rackwright.mesh.client import MeshClient
from rackwright.server.retention import Retention, RetentionPeriods
from rackwright.server.settings import Options
from rackwright.server.shelf_upkeep import ShelfUpkeep
from rackwright.server.webhook_deliveries import WebhookDeliveries


@asynccontextmanager
async def working_in_background(server: Server, options: Options, mesh: MeshClient | None) -> AsyncIterator[None]:
    """Run all background work of a server until the end of the block."""
    annealer, supervisor = server.annealer, server.supervisor
    assert annealer is not None
    watch = MachineWatch(server.store, server.installs.reach, options.heartbeat)
    powersave = PowerSaver(server.store, server.installs.reach, options.tick)
    webhooks = WebhookDeliveries(server.store, server.claimant.worker, WebhookSender(options.webhook_allow))
    retention = Retention(server.store, RetentionPeriods(options.event_retention, options.run_retention))
    until_stopped: dict[str, Callable[[], Awaitable[None]]] = {"annealer": annealer.run, "hooks": server.hooks.run}
    until_cancelled: dict[str, Callable[[], Awaitable[None]]] = {
        "installs": server.installs.run,
        "power orders": server.power_orders.run,
        "providers": server.providers.run,
        "watch": watch.run,
        "powersave": powersave.run,
        "webhooks": webhooks.run,
        "retention": retention.run,
        "shelf": ShelfUpkeep(server.store, server.shelf).run,
    }
    if mesh is not None:
        until_cancelled["mesh follower"] = MeshFollower(server.store, mesh, options.tick).run
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(supervisor.keep_running(name, run), name=name)
            for name, run in (until_stopped | until_cancelled).items()
        }
        try:
            yield
        finally:
            supervisor.stop()
            annealer.stop()
            server.hooks.stop()
            for name in until_cancelled:
                tasks[name].cancel()
