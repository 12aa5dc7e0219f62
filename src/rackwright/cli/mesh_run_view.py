"""How runs across servers look to a person: the list of them, and one of them line by line while it goes on."""

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

COLOURS = {"done": "green", "failed": "red", "refused": "red", "lost": "magenta", "changed": "yellow", "blocked": "red"}


def print_runs(runs: Iterable[dict[str, Any]]) -> None:
    table = Table("run", "mode", "servers", "outcome")
    for entry in runs:
        states = list(entry["tasks"].values())
        outcome = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        table.add_row(entry["run"], entry["mode"], str(len(entry["targets"])), outcome)
    Console().print(table)


def show(answers: Iterable[dict[str, Any]], as_json: bool) -> int:
    """Show a run as it goes on; the exit status: 0 all well, 1 something failed or was lost."""
    console = Console(highlight=False)
    ended: dict[str, str] = {}
    try:
        for told in answers:
            if told.get("event", {}).get("kind") == "still_here":
                continue
            if as_json:
                print(json.dumps(told), flush=True)
            if "run" in told:
                if not as_json:
                    console.print(f"run {told['run']} on {', '.join(told['targets'])}")
                continue
            event = told["event"]
            if event["kind"] == "task":
                ended[event["target"]] = event["state"]
            if not as_json:
                _line(console, event)
    except KeyboardInterrupt:
        print("It goes on without you; see: rackwright mesh runs", file=sys.stderr)
        return 130
    return 0 if ended and all(state == "done" for state in ended.values()) else 1


def _line(console: Console, event: dict[str, Any]) -> None:
    if event["kind"] == "state":
        state = event["state"]
        outcome = state["outcome"]
        colour = COLOURS.get("failed" if outcome == "failed" else outcome, "dim")
        console.print(f"{event['target']:<12} [{colour}]{outcome:<9}[/] {state['function']} {escape(state['id'])}")
        if outcome in ("failed", "blocked") and state["comment"]:
            console.print("\n".join(f"      {escape(line)}" for line in state["comment"].splitlines()))
    elif event["kind"] == "task" and event["state"] not in ("pending", "running"):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in event["summary"].items() if count)
        why = f": {escape(event['why'])}" if event["why"] else ""
        console.print(f"{event['target']:<12} [{COLOURS[event['state']]}]{event['state']}[/] {counts}{why}")
