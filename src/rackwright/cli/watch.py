"""Following work as it happens: a live view on a terminal, a line for each change elsewhere.

Watching changes nothing: it can be left at any time and picked up again.
"""

import sys
import time
from collections import Counter
from typing import Any

from rackwright.cli.client import Client
from rackwright.cli.output.answers import STYLES, table
from rackwright.cli.output.exits import Exit
from rackwright.cli.output.terminal import open_console, say

ORDER = ("error", "transition", "todo", "blocked", "proposed", "active")
PENDING = ("transition", "todo", "blocked")
LOOK = 0.5
"""Seconds between two looks."""
ROWS = 20
"""Of more than these the ones that matter most are shown."""


def follow(client: Client, what: str, *, once: bool = False, **only: str | None) -> None:
    """Show noderoles until none can go on by itself. Ends with 0 if all are ACTIVE, else says what is in the way."""
    query = {key: value for key, value in only.items() if value is not None}
    try:
        noderoles = _live(client, what, once, query) if sys.stdout.isatty() else _lines(client, once, query)
    except KeyboardInterrupt:
        say("\nLeft. The work goes on; the same command picks it up again.")
        return
    failed = [one for one in noderoles if one["state"] == "error"]
    for one in failed[:ROWS]:
        say(f"ERROR {one['role']} on {one['node']}: {one['error']}  (rackwright noderole log {one['id']})")
    if failed and not once:
        sys.exit(Exit.FAILED)


def _look(client: Client, query: dict[str, Any]) -> list[dict[str, Any]]:
    return client.pages("/node_roles", sort="cohort", **query)


def settled(noderoles: list[dict[str, Any]]) -> bool:
    """Nothing more happens by itself: none is being worked on or ready, and what is blocked stands behind an error."""
    counts = Counter(one["state"] for one in noderoles)
    if counts["transition"] or counts["todo"]:
        return False
    return not counts["blocked"] or bool(counts["error"])


def summary(noderoles: list[dict[str, Any]]) -> str:
    counts = Counter(one["state"] for one in noderoles)
    return ", ".join(f"{counts[state]} {state.upper()}" for state in ORDER if counts[state]) or "no noderoles"


def _lines(client: Client, once: bool, query: dict[str, str]) -> list[dict[str, Any]]:
    last = ""
    while True:
        noderoles = _look(client, query)
        line = summary(noderoles)
        if line != last:
            say(line, flush=True)
        last = line
        if once or settled(noderoles):
            return noderoles
        time.sleep(LOOK)


def _live(client: Client, what: str, once: bool, query: dict[str, str]) -> list[dict[str, Any]]:
    from rich.live import Live

    with Live(console=open_console(), refresh_per_second=8) as live:
        while True:
            noderoles = _look(client, query)
            live.update(view(what, noderoles), refresh=True)
            if once or settled(noderoles):
                return noderoles
            time.sleep(LOOK)


def view(what: str, noderoles: list[dict[str, Any]]) -> Any:
    """A bar, the counts, and the noderoles that matter most now."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    counts = Counter(one["state"] for one in noderoles)
    line = Text(f"{what}: ")
    for state in ORDER:
        if counts[state]:
            line.append(f"{counts[state]} {state.upper()}  ", style=STYLES[state])
    bar = ProgressBar(total=max(len(noderoles), 1), completed=counts["active"], width=60)
    interesting = sorted(
        (one for one in noderoles if one["state"] != "active"), key=lambda one: ORDER.index(one["state"])
    )
    parts: list[Any] = [line, bar]
    if interesting:
        parts.append(table(interesting[:ROWS], ("id", "role", "node", "state", "error")))
    if len(interesting) > ROWS:
        parts.append(Text(f"and {len(interesting) - ROWS} more", style="dim"))
    return Group(*parts)
