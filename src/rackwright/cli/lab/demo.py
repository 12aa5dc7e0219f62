"""`rackwright demo`: a server and simulated machines that go from discovery to an installed workload.

It needs no other machine: database, server and machines live in a temporary folder and in this process, and are gone
when it ends. How the demo is shown is in `demo_view.py`.
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
class DemoOptions:
    """The options of `rackwright demo`."""

    machines: int
    until_active: bool
    patience: float
    """Seconds after which `until_active` gives up."""
    port: int
    seed: int


class DemoFailed(Exception):
    """Not everything became ACTIVE; the text says what is wrong and where."""


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
            options = DemoOptions(machines, until_active, patience, port, seed)
            asyncio.run(_interruptible(_run_demo(Path(home), options)))
        except asyncio.CancelledError:
            say("Stopped.")
            raise typer.Exit(130 if until_active else 0) from None
        except DemoFailed as error:
            say(error, file=sys.stderr)
            raise typer.Exit(1) from None


async def _interruptible(work: Awaitable[None]) -> None:
    """Do work that Ctrl-C and SIGTERM cancel, so that everything ends in its order."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task


async def _run_demo(home: Path, options: DemoOptions) -> None:
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
        address = await stack.enter_async_context(listening(create_app(server), port=options.port))
        stack.enter_context(announced(home, address))
        lab = await stack.enter_async_context(running_lab([address], options.machines, seed=options.seed))
        view = View(options.machines)
        api = await stack.enter_async_context(
            AsyncApiClient(access_of_home(address, home), retry=patient(view.show_progress))
        )
        stack.enter_context(view)
        password = (home / PASSWORD_FILE).read_text().strip()
        view.say(f"Rackwright on {address}; log in as admin with the password {password}")
        view.say(f"For commands: export RACKWRIGHT_URL={address} RACKWRIGHT_HOME={home}")
        lab.power_on()
        with _failing_demo(options):
            async with asyncio.timeout(options.patience if options.until_active else None):
                person = Operator(api, view.show_progress)
                await _commit_workload(person, options.machines, view)
                await _wait_until_active(person, view)
        view.say(await _summarize(server.store, options.machines, time.monotonic() - began))
        if not options.until_active:
            view.say("Ctrl-C ends it.")
            await asyncio.Event().wait()


@contextlib.contextmanager
def _failing_demo(options: DemoOptions) -> Iterator[None]:
    """Raise DemoFailed for a timeout or a refusal within the block."""
    from rackwright.client.errors import ApiProblem
    from rackwright.lab.operator import RequestRefused

    try:
        yield
    except TimeoutError:
        raise DemoFailed(f"Not everything was ACTIVE within {options.patience:g} s.") from None
    except ApiProblem as problem:
        raise DemoFailed(f"{problem.call} was refused: {problem}") from problem
    except RequestRefused as error:
        raise DemoFailed(str(error)) from error


async def _commit_workload(person: "Operator", machines: int, view: "View") -> None:
    """Do what a person does: see the machines come, let them in, bind roles, look at the plan, commit it."""
    nodes = await person.wait_for_machines(machines)
    await person.accept(nodes)
    plan = await person.bind_workload(nodes)
    view.say(f"The plan: {len(plan['created'])} noderoles to make, {len(plan['wiped'])} machines to install.")
    await person.commit(plan)


async def _wait_until_active(person: "Operator", view: "View") -> None:
    """Watch until every noderole is ACTIVE; the first that fails ends the watching."""
    while True:
        states = await person.count_states()
        view.show(states, await person.api.pages("/node_roles", sort="cohort") if view.wants_rows else [])
        if states.keys() == {"active"}:
            return
        await asyncio.sleep(0.3)


async def _summarize(store: "Store", machines: int, seconds: float) -> str:
    async with store.read() as session:
        noderoles = await session.value("SELECT count(*) FROM node_roles")
        runs = await session.value("SELECT count(*) FROM runs WHERE state = 'succeeded'")
    return f"Everything is ACTIVE: {machines} nodes, {noderoles} noderoles, {runs} runs, {seconds:.1f} seconds."
