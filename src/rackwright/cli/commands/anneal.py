"""`rackwright anneal`: the annealer's work as a whole, a step of it by hand, and the cap of runs."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, fail
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import complete_names

app = make_app("The work itself.")


@app.command()
@prints()
def status() -> Any:
    """How many noderoles are in which state, and how many runs may execute at once."""
    return Client().get("/anneal")


@app.command()
@prints("what", "outcome", "because", empty="Nothing could run, and nothing waits.")
def step(noderole: Annotated[int | None, typer.Argument(help="Just this one.")] = None) -> Any:
    """One pass by hand: what can run, runs once; for what waits, why."""
    client = Client()
    if noderole is not None:
        client.get(f"/node_roles/{noderole}")  # ends the command if there is no such noderole
    done = client.post("/anneal/step", {"node_role": noderole})
    ran = [_row(f"{run['role']} on {run['node']}", run["outcome"], run["error"]) for run in done["ran"]]
    hooks = [_row(f"{call['handler']}.{call['hook']}", _hook_outcome(call), call["error"]) for call in done["hooks"]]
    waiting = [_row(item["title"], f"waits ({item['state']})", item["text"]) for item in done["waiting"]]
    return [*ran, *hooks, *waiting]


def _hook_outcome(call: dict[str, str]) -> str:
    return "failed" if call["error"] else "done"


def _row(what: str, outcome: str, because: str) -> dict[str, str]:
    return {"what": what, "outcome": outcome, "because": because}


@app.command()
@prints()
def cap(
    value: Annotated[str | None, typer.Argument(help="How many runs at once, or `auto`. None: show it.")] = None,
) -> Any:
    """How many runs may execute at once."""
    client = Client()
    if value is None:
        return client.get("/anneal/cap")
    if value != "auto" and not value.isdigit():
        fail(f"{value!r} is neither a number nor `auto`.", Exit.USAGE)
    return client.put("/anneal/cap", {"cap": value if value == "auto" else int(value)})


@app.command()
def watch(
    deployment: Annotated[
        str | None, typer.Option(help="Only this deployment's.", autocompletion=complete_names("/deployments"))
    ] = None,
    once: Annotated[bool, typer.Option(help="Show it once and end.")] = False,
) -> None:
    """Follow the work until all is ACTIVE or only a person can go on. Ctrl-C leaves it; the work goes on."""
    from rackwright.cli.watch import follow

    follow(Client(), f"deployment {deployment}" if deployment else "all deployments", once=once, deployment=deployment)
