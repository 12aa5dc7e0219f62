"""Follows the states of noderoles as they change: a live view on a terminal, a line for each change elsewhere.

Following changes nothing on the server: it can be ended at any time and begun again.
"""

import sys
import time
from collections import Counter
from typing import Any

from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit
from rackwright.cli.output.printing import STYLES, table
from rackwright.cli.output.terminal import open_console, say

ORDER = ("error", "transition", "todo", "blocked", "proposed", "active")
POLL_SECONDS = 0.5
ROWS = 20
"""The most noderoles that are shown; of more, those that matter most."""


def follow(client: Client, title: str, *, once: bool = False, **filters: str | None) -> None:
    """Show noderoles until none can go on by itself. If one is in ERROR, say why and end with an exit code."""
    query = {key: value for key, value in filters.items() if value is not None}
    try:
        noderoles = _show_live(client, title, once, query) if sys.stdout.isatty() else _print_lines(client, once, query)
    except KeyboardInterrupt:
        say("\nLeft. The work goes on; the same command picks it up again.")
        return
    failed = [noderole for noderole in noderoles if noderole["state"] == "error"]
    for noderole in failed[:ROWS]:
        name = f"{noderole['role']} on {noderole['node']}"
        say(f"ERROR {name}: {noderole['error']}  (rackwright noderole log {noderole['id']})")
    if failed and not once:
        sys.exit(Exit.FAILED)


def _read_noderoles(client: Client, query: dict[str, Any]) -> list[dict[str, Any]]:
    return client.pages("/node_roles", sort="cohort", **query)


def is_settled(noderoles: list[dict[str, Any]]) -> bool:
    """Return whether nothing more happens by itself.

    That is so if no noderole is being worked on or ready, and those that are blocked stand behind one in ERROR.
    """
    counts = _count_states(noderoles)
    if counts["transition"] or counts["todo"]:
        return False
    return not counts["blocked"] or bool(counts["error"])


def _count_states(noderoles: list[dict[str, Any]]) -> Counter[str]:
    return Counter(noderole["state"] for noderole in noderoles)


def summarize(noderoles: list[dict[str, Any]]) -> str:
    """Return one line with the number of noderoles in each state."""
    counts = _count_states(noderoles)
    return ", ".join(f"{counts[state]} {state.upper()}" for state in ORDER if counts[state]) or "no noderoles"


def _print_lines(client: Client, once: bool, query: dict[str, str]) -> list[dict[str, Any]]:
    last = ""
    while True:
        noderoles = _read_noderoles(client, query)
        line = summarize(noderoles)
        if line != last:
            say(line, flush=True)
        last = line
        if once or is_settled(noderoles):
            return noderoles
        time.sleep(POLL_SECONDS)


def _show_live(client: Client, title: str, once: bool, query: dict[str, str]) -> list[dict[str, Any]]:
    from rich.live import Live

    with Live(console=open_console(), refresh_per_second=8) as live:
        while True:
            noderoles = _read_noderoles(client, query)
            live.update(render(title, noderoles), refresh=True)
            if once or is_settled(noderoles):
                return noderoles
            time.sleep(POLL_SECONDS)


def render(title: str, noderoles: list[dict[str, Any]]) -> Any:
    """Return a bar, the counts, and the noderoles that matter most now, to be drawn on a terminal."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    counts = _count_states(noderoles)
    line = Text(f"{title}: ")
    for state in ORDER:
        if counts[state]:
            line.append(f"{counts[state]} {state.upper()}  ", style=STYLES[state])
    bar = ProgressBar(total=max(len(noderoles), 1), completed=counts["active"], width=60)
    unfinished = [noderole for noderole in noderoles if noderole["state"] != "active"]
    interesting = sorted(unfinished, key=lambda noderole: ORDER.index(noderole["state"]))
    parts: list[Any] = [line, bar]
    if interesting:
        parts.append(table(interesting[:ROWS], ("id", "role", "node", "state", "error")))
    if len(interesting) > ROWS:
        parts.append(Text(f"and {len(interesting) - ROWS} more", style="dim"))
    return Group(*parts)
