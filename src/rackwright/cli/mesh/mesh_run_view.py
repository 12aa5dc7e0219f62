"""How runs across servers look to a person: the list of them, and one of them line by line while it goes on."""

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
    table = Table("run", "mode", "servers", "outcome")
    for entry in runs:
        states = list(entry["tasks"].values())
        outcome = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        table.add_row(entry["run"], entry["mode"], str(len(entry["targets"])), outcome)
    print_table(table)


def print_news(news: Iterable[dict[str, Any]]) -> None:
    """What a run has told: that it has begun, or events of it."""
    console = open_console()
    for told in news:
        if "run" in told:
            console.print(f"run {told['run']} on {', '.join(told['targets'])}")
        else:
            _line(console, told["event"])


def _line(console: "Console", event: dict[str, Any]) -> None:
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
