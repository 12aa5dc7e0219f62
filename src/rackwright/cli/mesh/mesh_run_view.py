"""Prints runs across servers for a person: the list of runs, and one run line by line while it goes on."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from rackwright.cli.output.terminal import open_console, print_table

if TYPE_CHECKING:
    from rackwright.cli.output.terminal import Console

COLOURS = {"done": "green", "failed": "red", "refused": "red", "lost": "magenta", "cancelled": "magenta"}
COLOURS |= {"changed": "yellow", "blocked": "red"}


def print_runs(runs: Iterable[dict[str, Any]]) -> None:
    """Print a table of runs."""
    table = Table("run", "mode", "servers", "outcome")
    for run in runs:
        states = list(run["tasks"].values())
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        table.add_row(run["run"], run["mode"], str(len(run["targets"])), counts)
    print_table(table)


def print_messages(messages: Iterable[dict[str, Any]]) -> None:
    """Print messages of a run: that it has begun, or its events."""
    console = open_console()
    for message in messages:
        if "run" in message:
            console.print(f"run {message['run']} on {', '.join(message['targets'])}")
        else:
            _print_event(console, message["event"])


def _print_event(console: "Console", event: dict[str, Any]) -> None:
    if event["kind"] == "state":
        state = event["state"]
        outcome = state["outcome"]
        colour = COLOURS.get("failed" if outcome == "failed" else outcome, "dim")
        what = escape(f"{state['function']} {state['id']}")
        console.print(f"{event['target']:<12} [{colour}]{escape(f'{outcome:<9}')}[/] {what}")
        if outcome in ("failed", "blocked") and state["comment"]:
            console.print("\n".join(f"      {escape(line)}" for line in state["comment"].splitlines()))
    elif event["kind"] == "task" and event["state"] not in ("pending", "running"):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in event["summary"].items() if count)
        why = f": {escape(event['why'])}" if event["why"] else ""
        console.print(f"{event['target']:<12} [{COLOURS[event['state']]}]{event['state']}[/] {counts}{why}")
