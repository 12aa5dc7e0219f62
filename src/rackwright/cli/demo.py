"""rackwright demo: a whole system on this machine alone, from first start to everything ACTIVE."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

NODES = 6
ROLE = "crowbar-installed-node"


def main(argv: list[str]) -> int:
    """Run the demo; its data is gone afterwards."""
    if argv:
        print(
            "Usage: rackwright demo\n\n"
            "Starts a server with a database of its own, brings six nodes to ACTIVE, and ends."
        )
        return 0 if argv[0] in ("-h", "--help") else 2
    with tempfile.TemporaryDirectory(prefix="rackwright-demo-") as home:
        asyncio.run(_demo(Path(home)))
    return 0


async def _demo(home: Path) -> None:
    from rackwright.api.app import PREFIX, create_app
    from rackwright.api.serve import TOKEN_FILE, Options, running

    began = time.monotonic()
    async with running(Options(home, manual=True)) as server:
        token = (home / TOKEN_FILE).read_text().strip()
        transport = httpx.ASGITransport(app=create_app(server))
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://demo{PREFIX}", headers={"Authorization": f"Bearer {token}"}
        ) as api:
            await _walk(api)
    print(f"Everything is ACTIVE after {time.monotonic() - began:.1f} s.")


async def _walk(api: httpx.AsyncClient) -> None:
    await _call(api, "POST", "/deployments", {"name": "demo"})
    for number in range(1, NODES + 1):
        name = f"n{number}.demo.example"
        await _call(api, "POST", "/nodes", {"name": name, "alive": True})
        await _call(api, "POST", "/node_roles", {"node": name, "role": ROLE, "deployment": "demo"})
    plan = await _call(api, "POST", "/deployments/demo/plan")
    print(f"The plan: {len(plan['created'])} noderoles to make, {len(plan['moved'])} nodes to move.")
    await _call(api, "POST", "/deployments/demo/commit", {"digest": plan["digest"]})
    while ran := (await _call(api, "POST", "/anneal/step"))["ran"]:
        print("One pass: " + ", ".join(f"{one['role']} on {one['node']}" for one in ran))
    counts = (await _call(api, "GET", "/anneal"))["noderoles"]
    print("Noderoles: " + ", ".join(f"{count} {state}" for state, count in counts.items()))


async def _call(api: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    answer = await api.request(method, path, json=body)
    answer.raise_for_status()
    return answer.json()
