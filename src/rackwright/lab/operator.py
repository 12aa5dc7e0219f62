"""The person in front of a lab: sees machines come, lets them in, wants a workload on each, commits, and watches.

Speaks the API as any client does, and is `patient`: on a busy computer an answer may take long or be lost, so it asks
again. What is to be done once is done once, however often it was asked for: each change has an Idempotency-Key. How
long all of it may take is for whoever calls to say.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rackwright.client.awaited import AsyncApiClient
from rackwright.client.calls import RetryPolicy

DEPLOYMENT = "demo"
STORES_EVERY = 4
MOST_STORES = 10
"""Every so many machines one is a store, up to a number; the others serve web pages, and need all of the stores."""
AT_ONCE = 4
"""Machines that are let in at the same time."""
LATER = frozenset({429, 502, 503, 504})

Tell = Callable[[str], None]


class Refused(Exception):
    """Something failed; the text says what."""


def patient(tell: Tell, pause: float = 1.0) -> RetryPolicy:
    """Return the patience of an operator. `pause`: seconds before a question is asked again."""
    return RetryPolicy(attempts=None, pause=pause, retry_statuses=LATER, report=tell)


class Operator:
    """`api` is a client of the server as an administrator; `tell` is told how far things have come."""

    def __init__(self, api: AsyncApiClient, tell: Tell) -> None:
        self.api = api
        self._tell = tell

    async def discovered(self, machines: int) -> list[str]:
        """Wait until so many machines wait to be let in."""
        nodes: list[Any] = []
        while len(nodes) < machines:
            await asyncio.sleep(0.2)
            nodes = await self.api.pages("/nodes", available=False, fields="name")
            self._tell(f"{len(nodes)} of {machines} machines discovered")
        return [str(node["name"]) for node in nodes]

    async def accept(self, nodes: Sequence[str]) -> None:
        waiting, done = list(reversed(nodes)), 0

        async def some() -> None:
            nonlocal done
            while waiting:
                await self.api.post(f"/nodes/{waiting.pop()}/accept")
                done += 1
                self._tell(f"{done} of {len(nodes)} machines accepted")

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    async def want_workload(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Bind a role to each, and look at the plan."""
        await self.api.post("/deployments", {"name": DEPLOYMENT})
        stores = set(nodes[::STORES_EVERY][:MOST_STORES])
        bindings = [{"node": node, "role": "lab-storage" if node in stores else "lab-web"} for node in nodes]
        await self.api.post(f"/deployments/{DEPLOYMENT}/bind", {"bindings": bindings})
        plan: dict[str, Any] = await self.api.post(f"/deployments/{DEPLOYMENT}/plan")
        return plan

    async def commit(self, plan: dict[str, Any]) -> None:
        await self.api.post(f"/deployments/{DEPLOYMENT}/commit", {"digest": plan["digest"]})

    async def states(self) -> dict[str, int]:
        """How many noderoles are in which state. One that failed ends the watching."""
        counts: dict[str, int] = (await self.api.get("/anneal"))["noderoles"]
        if counts.get("error"):
            await self.look_for_failed(await self.api.pages("/node_roles", state="error"))
        return {state: count for state, count in counts.items() if count}

    async def look_for_failed(self, noderoles: Sequence[dict[str, Any]]) -> None:
        failed = [one for one in noderoles if one["state"] == "error"]
        if failed:
            first = failed[0]
            raise Refused(f"{len(failed)} failed, first {first['role']} on {first['node']}: {first['error']}")
