"""rackwright anneal"""

from typing import Annotated

import typer

from rackwright.cli.client import Client, show

app = typer.Typer(help="The work itself.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(json: Json = False) -> None:
    """How many noderoles are in which state."""
    show(Client().call("GET", "/anneal"), ("noderoles", "cap"), json)


@app.command()
def step(noderole: Annotated[int | None, typer.Argument(help="Just this one.")] = None, json: Json = False) -> None:
    """One pass by hand: what can run, runs once."""
    done = Client().call("POST", "/anneal/step", {"node_role": noderole})
    if json:
        show(done, (), json)
        return
    show(done["ran"], ("run_id", "role", "node", "outcome", "error"), json)
    if done["hooks"]:
        show(done["hooks"], ("handler", "hook", "error"), json)
    if done["waiting"]:
        show(done["waiting"], ("title", "state", "text", "remedy"), json)
