"""A lab of many simulated machines in this process, with an HTTP address for their BMCs and for the runs of jigs."""

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
"""Machines that share an address. The server limits strangers by address: a thousand at a single one would wait."""
PATIENCE = 30.0
"""Seconds to wait for an answer; a machine that got none asks again."""
KEEPALIVE_SECONDS = 2.0
"""How long an idle connection is kept: less than a server keeps it, or it is closed just when it is used again."""


def _client(index: int) -> httpx.AsyncClient:
    """Return an HTTP client with a loopback address of its own."""
    source = f"127.77.{index // 250}.{index % 250 + 1}"
    limits = httpx.Limits(max_connections=8, max_keepalive_connections=8, keepalive_expiry=KEEPALIVE_SECONDS)
    # TLS is not used here, and the store of certificates would be read for each client.
    transport = httpx.AsyncHTTPTransport(local_address=source, limits=limits, trust_env=False, verify=False)
    return httpx.AsyncClient(timeout=PATIENCE, trust_env=False, transport=transport)


class RunIn(BaseModel):
    token: int
    role: str
    seconds: float = 0.0


class Lab:
    """The machines, and the HTTP interface to control them."""

    def __init__(self, servers: Sequence[str], machines: int, behaviour: Behaviour, seed: int, address: str) -> None:
        # Several machines share a client, whose pool limits their connections.
        self._clients = [_client(index) for index in range((machines + SHARING - 1) // SHARING)]
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
        """Return (machine, tokens) of runs that were on a machine at the same time, from the machines' own journals."""
        return [(number, pair) for number, machine in self.machines.items() for pair in machine.journal.overlaps]

    def control(self, app: FastAPI) -> None:
        """Add the BMCs and agents of all machines to a web application."""

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
            find(number)  # a simulated machine always boots from the network first

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
    """Run machines, which are off at first, with their control listening on a free loopback port."""
    # The machines report the address of their BMCs, so it must be known before they are created.
    app = FastAPI(openapi_url=None)
    async with listening(app) as address:
        lab = Lab(servers, machines, behaviour or Behaviour(), seed, address)
        lab.control(app)
        try:
            yield lab
        finally:
            await lab.close()
