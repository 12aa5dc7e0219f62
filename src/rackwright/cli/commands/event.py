"""`rackwright event`: the events of a server, past ones and live."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say

app = make_app("What happened, and what happens.")

COLUMNS = ("at", "kind", "actor", "data")
Kind = Annotated[list[str] | None, typer.Option("--kind", help="Only this kind; may be repeated.")]
Since = Annotated[str | None, typer.Option(help="Only what came after this cursor.")]


@app.command("list")
@prints("cursor", *COLUMNS, empty="Nothing happened.")
def list_all(kind: Kind = None, since: Since = None, limit: Annotated[int, typer.Option(min=1, max=1000)] = 100) -> Any:
    """Events from the oldest on. The cursor of the last one leads on: --since CURSOR"""
    return Client().get("/events", kind=kind, since=since, limit=limit)["items"]


@app.command()
def watch(kind: Kind = None, since: Since = None, json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Events as they happen, until Ctrl-C; breaks of the connection leave no gap."""
    from json import dumps

    from rackwright.cli.output.printing import plain

    client = Client()
    cursor = since
    try:
        while True:
            for event_id, _, event in client.stream("/events", cursor, kind=kind, since=since):
                cursor = event_id
                if json:
                    say(dumps(event), flush=True)
                else:
                    say(f"{event['at'][:19]}  {event['kind']:<24}  {plain(event['data'])}", flush=True)
            client.get("/me")  # ends the command if the server stays away
    except KeyboardInterrupt:
        say(f"\nGo on from here with --since {cursor}" if cursor else "")
