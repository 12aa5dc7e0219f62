"""rackwright demo: a whole system on this machine alone. Simulated machines go from discovery to an installed workload.

Database, server and machines live in a temporary folder and in this process, and are gone when it ends. How it is
shown is in `demo_view.py`.
"""

import asyncio
import contextlib
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackwright.cli.apps import make_app

if TYPE_CHECKING:
    import httpx

    from rackwright.cli.demo_view import View
    from rackwright.store.session import Store

DEPLOYMENT = "demo"
STORES_EVERY = 4
"""Every so many machines one is a store; the others serve web pages, and need the stores."""


@dataclass(frozen=True)
class Wanted:
    machines: int
    until_active: bool
    patience: float
    port: int
    seed: int


class DemoFailed(Exception):
    """It did not come to rest; the text says what is wrong and where."""


app = make_app(no_args_is_help=False)


@app.command()
def demo(
    machines: Annotated[int, typer.Option(min=1, max=1000, help="How many simulated machines.")] = 24,
    until_active: Annotated[bool, typer.Option(help="End when everything is ACTIVE.")] = False,
    patience: Annotated[float, typer.Option(help="Seconds after which --until-active gives up.")] = 900.0,
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any that is free.")] = 0,
    seed: Annotated[int, typer.Option(help="What the machines' delays are drawn from.")] = 1,
) -> None:
    """Watch machines go from discovery to an installed workload. Ctrl-C ends it and leaves nothing behind."""
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="rackwright-demo-") as home:
        try:
            asyncio.run(_interruptible(_demo(Path(home), Wanted(machines, until_active, patience, port, seed))))
        except asyncio.CancelledError:
            print("Stopped.")
            raise typer.Exit(130 if until_active else 0) from None
        except DemoFailed as error:
            print(error, file=sys.stderr)
            raise typer.Exit(1) from None


async def _interruptible(work: Awaitable[None]) -> None:
    """Ctrl-C and a polite kill let everything end in its order."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task


async def _demo(home: Path, wanted: Wanted) -> None:
    import httpx

    from rackwright.api.app import PREFIX, create_app
    from rackwright.api.serve import PASSWORD_FILE, TOKEN_FILE, Options, listening, running
    from rackwright.cli.demo_view import View
    from rackwright.lab.lab import running_lab

    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(Options(home, lab=True, heartbeat=10, tick=1)))
        address = await stack.enter_async_context(listening(create_app(server), port=wanted.port))
        lab = await stack.enter_async_context(running_lab([address], wanted.machines, seed=wanted.seed))
        headers = {"Authorization": f"Bearer {(home / TOKEN_FILE).read_text().strip()}"}
        api = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"{address}{PREFIX}", headers=headers, timeout=60, trust_env=False)
        )
        view = stack.enter_context(View(wanted.machines))
        password = (home / PASSWORD_FILE).read_text().strip()
        view.say(f"Rackwright on {address}; log in as admin with the password {password}")
        view.say(f"For commands: export RACKWRIGHT_URL={address} RACKWRIGHT_HOME={home}")
        lab.power_on()
        with _giving_up(wanted):
            async with asyncio.timeout(wanted.patience if wanted.until_active else None):
                await _intend(api, wanted.machines, view)
                await _converge(api, view)
        view.say(await _summary(server.store, wanted.machines, time.monotonic() - began))
        if not wanted.until_active:
            view.say("Ctrl-C ends it.")
            await asyncio.Event().wait()


@contextlib.contextmanager
def _giving_up(wanted: Wanted) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise DemoFailed(f"Not everything was ACTIVE within {wanted.patience:g} s.") from None


async def _intend(api: "httpx.AsyncClient", machines: int, view: "View") -> None:
    """What a person does: see the machines come, let them in, bind roles, look at the plan, commit it."""
    nodes: list[Any] = []
    while len(nodes) < machines:
        await asyncio.sleep(0.2)
        nodes = await _all(api, "/nodes?available=false")
        view.count(f"{len(nodes)} of {machines} machines discovered")
    for node in nodes:
        await _call(api, "POST", f"/nodes/{node['name']}/accept")
    await _call(api, "POST", "/deployments", {"name": DEPLOYMENT})
    for number, node in enumerate(nodes):
        role = "lab-web" if number % STORES_EVERY else "lab-storage"
        await _call(api, "POST", "/node_roles", {"node": node["name"], "role": role, "deployment": DEPLOYMENT})
        view.count(f"{number + 1} of {machines} machines accepted and bound")
    plan = await _call(api, "POST", f"/deployments/{DEPLOYMENT}/plan")
    view.say(f"The plan: {len(plan['created'])} noderoles to make, {len(plan['wiped'])} machines to install.")
    await _call(api, "POST", f"/deployments/{DEPLOYMENT}/commit", {"digest": plan["digest"]})


async def _converge(api: "httpx.AsyncClient", view: "View") -> None:
    """Watch until every noderole is ACTIVE; the first that fails ends the watching."""
    while True:
        noderoles = await _all(api, "/node_roles?sort=cohort")
        view.show(noderoles)
        failed = [one for one in noderoles if one["state"] == "error"]
        if failed:
            first = failed[0]
            raise DemoFailed(f"{len(failed)} failed, first {first['role']} on {first['node']}: {first['error']}")
        if all(one["state"] == "active" for one in noderoles):
            return
        await asyncio.sleep(0.3)


async def _summary(store: "Store", machines: int, seconds: float) -> str:
    async with store.read() as session:
        noderoles = await session.value("SELECT count(*) FROM node_roles")
        runs = await session.value("SELECT count(*) FROM runs WHERE state = 'succeeded'")
    return f"Everything is ACTIVE: {machines} nodes, {noderoles} noderoles, {runs} runs, {seconds:.1f} seconds."


async def _all(api: "httpx.AsyncClient", path: str) -> list[Any]:
    """All of a list, page by page."""
    items: list[Any] = []
    cursor = ""
    while True:
        page = await _call(api, "GET", f"{path}&limit=1000{cursor}")
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={page['next']}"


async def _call(api: "httpx.AsyncClient", method: str, path: str, body: Any = None) -> Any:
    import httpx

    try:
        answer = await api.request(method, path, json=body)
    except httpx.TransportError as error:
        said = str(error) or type(error).__name__
        raise DemoFailed(f"{method} {path} got no answer ({said}). Is this machine too busy?") from error
    if answer.status_code >= 400:
        raise DemoFailed(f"{method} {path} was refused: {answer.text}")
    return answer.json() if answer.content else None
