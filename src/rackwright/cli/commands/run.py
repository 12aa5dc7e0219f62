"""`rackwright run`: runs of jigs, with their logs."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say, say_output
from rackwright.cli.shared import Filters, Limit, Sort, Yes, read_list

app = make_app("What jigs did and do.")

COLUMNS = ("id", "role", "node", "state", "error", "jig", "attempt", "started_at", "ended_at")
Id = Annotated[int, typer.Argument(help="Id of a run, as `run list` shows it.")]


@app.command("list")
@prints(*COLUMNS, empty="No run fits.")
def list_all(filters: Filters = None, sort: Sort = "-id", limit: Limit = 50) -> list[Any]:
    """The newest runs, or those that fit: -f state=failed -f node=n1.rack.example"""
    return read_list("/runs", filters, sort, limit)


@app.command("show")
@prints()
def show_one(id: Id) -> Any:
    """One run."""
    return Client().get(f"/runs/{id}")


@app.command()
def log(id: Id, follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while it runs.")] = False) -> None:
    """What it printed."""
    print_log(Client(), id, follow)


@app.command()
@prints()
def cancel(id: Id, yes: Yes = False) -> Any:
    """End a run. Its noderole goes to ERROR."""
    confirm(f"End run {id}? Its noderole goes to ERROR.", yes)
    return Client().post(f"/runs/{id}/cancel")


def print_log(client: Client, id: int, follow: bool) -> None:
    """Print the log so far; with `follow`, also the rest until the run ends, over breaks of the connection too."""
    if not follow:
        text, _ = client.text(f"/runs/{id}/log")
        say_output(text if text.endswith("\n") or not text else f"{text}\n")
        return
    position = ""
    while True:
        for event_id, kind, data in client.stream(f"/runs/{id}/log/tail", position or None):
            position = event_id
            if kind == "end":
                say(f"Run {id}: {data}.")
                return
            say_output(data)
        client.get(f"/runs/{id}")  # ends the command if the server stays away
