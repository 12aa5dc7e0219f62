"""What a change of the system deployment makes run again: said before it is made, because it is in force at once."""

from typing import Annotated, Any

import typer

from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.terminal import say

Plan = Annotated[bool, typer.Option("--plan", help="Only say what would run again.")]
MOST_LINES = 30


def print_affected(affected: dict[str, Any]) -> None:
    """Say what runs again, as far as it fits a screen."""
    lines = [f"~ {one['role']} on {one['node']}  ({one['because']})" for one in affected["rerun"]]
    more = len(lines) - MOST_LINES + affected["others"] if len(lines) > MOST_LINES else affected["others"]
    for line in [*lines[:MOST_LINES], *([f"~ and {more} more"] if more else [])]:
        say(line)
    if not lines and not more:
        say("Nothing runs again.")
    elif not affected["at_once"]:
        say("It runs again when the proposal is committed.")


def ask_first(client: Client, deployment: str, role: str, yes: bool) -> bool:
    """Ask before a change that is in force as it is made and makes something run again; say whether it was asked."""
    affected = affected_by(client, deployment, role)
    count = len(affected["rerun"]) + affected["others"]
    if yes or not (affected["at_once"] and count):
        return False
    print_affected(affected)
    confirm(f"This is in force at once, and {count} noderoles run again. Do it?", yes)
    return True


def affected_by(client: Client, deployment: str, role: str) -> dict[str, Any]:
    found = client.pages("/deployment_roles", 1, deployment=deployment, role=role)
    if not found:
        return {"at_once": False, "rerun": [], "others": 0}
    affected: dict[str, Any] = client.get(f"/deployment_roles/{found[0]['id']}/affected")
    return affected
