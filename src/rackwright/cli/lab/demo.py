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
from typing import TYPE_CHECKING, Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.terminal import say

if TYPE_CHECKING:
    from rackwright.cli.lab.demo_view import View
    from rackwright.lab.operator import Operator
    from rackwright.store.store import Store


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
            say("Stopped.")
            raise typer.Exit(130 if until_active else 0) from None
        except DemoFailed as error:
            say(error, file=sys.stderr)
            raise typer.Exit(1) from None


async def _interruptible(work: Awaitable[None]) -> None:
    """Ctrl-C and a polite kill let everything end in its order."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task


async def _demo(home: Path, wanted: Wanted) -> None:
    from rackwright.api.app import create_app
    from rackwright.cli.lab.demo_view import View
    from rackwright.client.access import access_of_home
    from rackwright.client.awaited import AsyncApiClient
    from rackwright.lab.lab import running_lab
    from rackwright.lab.operator import Operator, patient
    from rackwright.server.composition import running_server
    from rackwright.server.first_admin import PASSWORD_FILE
    from rackwright.server.listener import listening
    from rackwright.server.running_servers import announced
    from rackwright.server.settings import Options

    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server(Options(home, lab=True, heartbeat=10, tick=1)))
        address = await stack.enter_async_context(listening(create_app(server), port=wanted.port))
        stack.enter_context(announced(home, address))
        lab = await stack.enter_async_context(running_lab([address], wanted.machines, seed=wanted.seed))
        view = View(wanted.machines)
        api = await stack.enter_async_context(AsyncApiClient(access_of_home(address, home), retry=patient(view.count)))
        stack.enter_context(view)
        password = (home / PASSWORD_FILE).read_text().strip()
        view.say(f"Rackwright on {address}; log in as admin with the password {password}")
        view.say(f"For commands: export RACKWRIGHT_URL={address} RACKWRIGHT_HOME={home}")
        lab.power_on()
        with _giving_up(wanted):
            async with asyncio.timeout(wanted.patience if wanted.until_active else None):
                person = Operator(api, view.count)
                await _intend(person, wanted.machines, view)
                await _converge(person, view)
        view.say(await _summary(server.store, wanted.machines, time.monotonic() - began))
        if not wanted.until_active:
            view.say("Ctrl-C ends it.")
            await asyncio.Event().wait()


@contextlib.contextmanager
def _giving_up(wanted: Wanted) -> Iterator[None]:
    from rackwright.client.errors import ApiProblem
    from rackwright.lab.operator import Refused

    try:
        yield
    except TimeoutError:
        raise DemoFailed(f"Not everything was ACTIVE within {wanted.patience:g} s.") from None
    except ApiProblem as problem:
        raise DemoFailed(f"{problem.call} was refused: {problem}") from problem
    except Refused as error:
        raise DemoFailed(str(error)) from error


async def _intend(person: "Operator", machines: int, view: "View") -> None:
    """What a person does: see the machines come, let them in, bind roles, look at the plan, commit it."""
    nodes = await person.discovered(machines)
    await person.accept(nodes)
    plan = await person.want_workload(nodes)
    view.say(f"The plan: {len(plan['created'])} noderoles to make, {len(plan['wiped'])} machines to install.")
    await person.commit(plan)


async def _converge(person: "Operator", view: "View") -> None:
    """Watch until every noderole is ACTIVE; the first that fails ends the watching."""
    while True:
        states = await person.states()
        view.show(states, await person.api.pages("/node_roles", sort="cohort") if view.wants_rows else [])
        if states.keys() == {"active"}:
            return
        await asyncio.sleep(0.3)


async def _summary(store: "Store", machines: int, seconds: float) -> str:
    async with store.read() as session:
        noderoles = await session.value("SELECT count(*) FROM node_roles")
        runs = await session.value("SELECT count(*) FROM runs WHERE state = 'succeeded'")
    return f"Everything is ACTIVE: {machines} nodes, {noderoles} noderoles, {runs} runs, {seconds:.1f} seconds."
