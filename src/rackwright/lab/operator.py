"""A scripted operator of a lab: waits for machines, accepts them, binds a workload to each, commits, and counts states.

It uses the API as any client does, and is `patient`: on a busy computer an answer may take long or be lost, so a
request is sent again. A change is still made only once: each has an Idempotency-Key. The caller limits the total time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rackwright.client.awaited import AsyncApiClient
from rackwright.client.calls import RetryPolicy

DEPLOYMENT = "demo"
STORES_EVERY = 4
MOST_STORES = 10
"""Every fourth machine is a store, at most ten in all; the others serve web pages, and need all of the stores."""
AT_ONCE = 4
"""Machines that are accepted at the same time."""
RETRY_STATUSES = frozenset({429, 502, 503, 504})

Tell = Callable[[str], None]


class RequestRefused(Exception):
    """A noderole failed; the text says which and why."""


def patient(tell: Tell, pause: float = 1.0) -> RetryPolicy:
    """Return the patience of an operator. `pause`: seconds before a request is sent again."""
    return RetryPolicy(attempts=None, pause=pause, retry_statuses=RETRY_STATUSES, report=tell)


class Operator:
    """An operator. `api` is a client of the server as administrator; `tell` is called with the progress as text."""

    def __init__(self, api: AsyncApiClient, tell: Tell) -> None:
        self.api = api
        self._tell = tell

    async def wait_for_machines(self, machines: int) -> list[str]:
        """Wait until so many machines are discovered and wait to be accepted; return their names."""
        nodes: list[Any] = []
        while len(nodes) < machines:
            await asyncio.sleep(0.2)
            nodes = await self.api.pages("/nodes", available=False, fields="name")
            self._tell(f"{len(nodes)} of {machines} machines discovered")
        return [str(node["name"]) for node in nodes]

    async def accept(self, nodes: Sequence[str]) -> None:
        waiting, done = list(reversed(nodes)), 0

        async def accept_waiting() -> None:
            nonlocal done
            while waiting:
                await self.api.post(f"/nodes/{waiting.pop()}/accept")
                done += 1
                self._tell(f"{done} of {len(nodes)} machines accepted")

        await asyncio.gather(*(accept_waiting() for _ in range(AT_ONCE)))

    async def bind_workload(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Bind a role to each node; return the plan of the deployment."""
        await self.api.post("/deployments", {"name": DEPLOYMENT})
        stores = set(nodes[::STORES_EVERY][:MOST_STORES])
        bindings = [{"node": node, "role": "lab-storage" if node in stores else "lab-web"} for node in nodes]
        await self.api.post(f"/deployments/{DEPLOYMENT}/bind", {"bindings": bindings})
        plan: dict[str, Any] = await self.api.post(f"/deployments/{DEPLOYMENT}/plan")
        return plan

    async def commit(self, plan: dict[str, Any]) -> None:
        await self.api.post(f"/deployments/{DEPLOYMENT}/commit", {"digest": plan["digest"]})

    async def count_states(self) -> dict[str, int]:
        """Return how many noderoles are in each state. Raises RequestRefused if one has failed."""
        counts: dict[str, int] = (await self.api.get("/anneal"))["noderoles"]
        if counts.get("error"):
            await self.raise_if_failed(await self.api.pages("/node_roles", state="error"))
        return {state: count for state, count in counts.items() if count}

    async def raise_if_failed(self, noderoles: Sequence[dict[str, Any]]) -> None:
        failed = [noderole for noderole in noderoles if noderole["state"] == "error"]
        if failed:
            first = failed[0]
            raise RequestRefused(f"{len(failed)} failed, first {first['role']} on {first['node']}: {first['error']}")
