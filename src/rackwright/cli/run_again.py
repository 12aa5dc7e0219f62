"""Shows which noderoles a change of a deployment makes run again, and asks before a change that takes effect at once.

Changes of the system deployment do.
"""

from typing import Annotated, Any

import typer

from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.terminal import say

PlanOption = Annotated[bool, typer.Option("--plan", help="Only say what would run again.")]
MOST_LINES = 30


def print_affected(affected: dict[str, Any]) -> None:
    """Print the noderoles that run again, as many as fit a screen."""
    lines = [f"~ {rerun['role']} on {rerun['node']}  ({rerun['because']})" for rerun in affected["rerun"]]
    more = len(lines) - MOST_LINES + affected["others"] if len(lines) > MOST_LINES else affected["others"]
    for line in [*lines[:MOST_LINES], *([f"~ and {more} more"] if more else [])]:
        say(line)
    if not lines and not more:
        say("Nothing runs again.")
    elif not affected["at_once"]:
        say("It runs again when the proposal is committed.")


def confirm_reruns(client: Client, deployment: str, role: str, yes: bool) -> bool:
    """Ask before a change that takes effect at once and makes noderoles run again; return whether it asked."""
    affected = read_affected(client, deployment, role)
    count = len(affected["rerun"]) + affected["others"]
    if yes or not (affected["at_once"] and count):
        return False
    print_affected(affected)
    confirm(f"This is in force at once, and {count} noderoles run again. Do it?", yes)
    return True


def read_affected(client: Client, deployment: str, role: str) -> dict[str, Any]:
    """Return what a change of a role's data in a deployment makes run again."""
    deployment_roles = client.pages("/deployment_roles", 1, deployment=deployment, role=role)
    if not deployment_roles:
        return {"at_once": False, "rerun": [], "others": 0}
    affected: dict[str, Any] = client.get(f"/deployment_roles/{deployment_roles[0]['id']}/affected")
    return affected
