"""A lab: many simulated machines in one process, and one address for their BMCs and for what jigs hand them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from rackwright.lab.machine import Behaviour, Machine
from rackwright.server.listener import listening

SHARING = 20
"""Machines that share an address: strangers are limited by address, and a thousand behind one would wait for that."""
PATIENCE = 30.0
"""Seconds for an answer; a machine that had none asks again."""
KEPT_SECONDS = 2.0
"""How long an idle connection is kept: less than a server keeps it, or it is closed just when it is used again."""


def _client(place: int) -> httpx.AsyncClient:
    """A client with a loopback address of its own."""
    source = f"127.77.{place // 250}.{place % 250 + 1}"
    limits = httpx.Limits(max_connections=8, max_keepalive_connections=8, keepalive_expiry=KEPT_SECONDS)
    # TLS is not spoken here, and its store of certificates would be read for each.
    transport = httpx.AsyncHTTPTransport(local_address=source, limits=limits, trust_env=False, verify=False)
    return httpx.AsyncClient(timeout=PATIENCE, trust_env=False, transport=transport)


class RunIn(BaseModel):
    token: int
    role: str
    seconds: float = 0.0


class Lab:
    """The machines and their control."""

    def __init__(self, servers: Sequence[str], machines: int, behaviour: Behaviour, seed: int, address: str) -> None:
        # Some machines share a client: its pool of connections is what bounds them.
        self._clients = [_client(place) for place in range((machines + SHARING - 1) // SHARING)]
        turns = itertools.cycle(servers)
        self.address = address
        self.machines = {
            number: Machine(
                number, lambda: next(turns), self._clients[(number - 1) // SHARING], behaviour, seed, address
            )
            for number in range(1, machines + 1)
        }

    def power_on(self) -> None:
        for machine in self.machines.values():
            machine.power_on()

    async def close(self) -> None:
        await asyncio.gather(*(machine.power_off() for machine in self.machines.values()))
        await asyncio.gather(*(client.aclose() for client in self._clients))

    def overlaps(self) -> list[tuple[int, tuple[int, int]]]:
        """(machine, tokens) of runs that were at once on one machine, by the machines' own account."""
        return [(number, pair) for number, one in self.machines.items() for pair in one.journal.overlaps]

    def control(self, app: FastAPI) -> None:
        """BMCs and agents of all machines, over HTTP."""

        def find(number: int) -> Machine:
            if number not in self.machines:
                raise HTTPException(404)
            return self.machines[number]

        @app.get("/machines/{number}")
        async def look(number: int) -> dict[str, str | None]:
            machine = find(number)
            root = machine.disk if machine.bootenv == "local" else None
            return {"power": machine.power, "boot_id": machine.boot_id, "root_device": root}

        @app.post("/machines/{number}/power/{action}")
        async def power(number: int, action: str) -> None:
            machine = find(number)
            if action == "on":
                machine.power_on()
            elif action == "off":
                await machine.power_off()
            else:
                await machine.reset()

        @app.post("/machines/{number}/boot_device/{device}")
        async def boot_device(number: int, device: str) -> None:
            find(number)  # it asks the network at each boot, whatever it is told

        @app.post("/machines/{number}/run")
        async def run(number: int, body: RunIn) -> None:
            try:
                await find(number).execute(body.token, body.role, body.seconds)
            except ValueError as error:
                raise HTTPException(409, str(error)) from None
            except (ConnectionError, asyncio.CancelledError):
                raise HTTPException(503, "the machine is off, or was reset") from None


@asynccontextmanager
async def running_lab(
    servers: Sequence[str], machines: int, behaviour: Behaviour | None = None, seed: int = 1
) -> AsyncIterator[Lab]:
    """Machines that are off, with their control listening on a free port of loopback."""
    # The machines are told where their BMCs are, so the address must be known before there are any.
    app = FastAPI(openapi_url=None)
    async with listening(app) as address:
        lab = Lab(servers, machines, behaviour or Behaviour(), seed, address)
        lab.control(app)
        try:
            yield lab
        finally:
            await lab.close()
