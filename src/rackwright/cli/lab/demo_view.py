"""How the demo is shown: a live table on a terminal, a line for each change elsewhere."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rackwright.cli.output.terminal import open_console

if TYPE_CHECKING:
    from rackwright.cli.output.terminal import Console

STATES = {
    "active": "green",
    "transition": "yellow",
    "todo": "cyan",
    "blocked": "blue",
    "proposed": "white",
    "error": "bold red",
}
MOST_ROWS = 40
"""Of more machines than that only the counts are shown."""


class View:
    """Say lines that stay, and show what changes."""

    def __init__(self, machines: int, console: "Console | None" = None) -> None:
        self.console = console or open_console(soft_wrap=True)
        self._live = Live(console=self.console, refresh_per_second=8) if self.console.is_terminal else None
        self.wants_rows = self._live is not None and machines <= MOST_ROWS
        """Whether single noderoles are shown, and not only their counts."""
        self._last = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        self.console.print(line)

    def count(self, line: str) -> None:
        """How far something has come."""
        if self._live is not None:
            self._live.update(Text(line))
        elif line != self._last:
            self.console.print(line)
        self._last = line

    def show(self, counts: Mapping[str, int], noderoles: Sequence[dict[str, Any]]) -> None:
        """How many noderoles are in which state, and, where they are shown, all of them as they are now."""
        line = ", ".join(f"{counts[state]} {state.upper()}" for state in STATES if counts.get(state))
        if self._live is None:
            self.count(line)
        else:
            table = [_table(noderoles)] if self.wants_rows else []
            self._live.update(Group(*table, Text(line)))


def _table(noderoles: Sequence[dict[str, Any]]) -> Table:
    table = Table("Node", "Noderoles", "Now", box=None, pad_edge=False)
    nodes: dict[str, list[dict[str, Any]]] = {}
    for one in noderoles:
        nodes.setdefault(one["node"], []).append(one)
    for node, own in sorted(nodes.items()):
        bar = Text()
        for one in sorted(own, key=lambda one: (one["cohort"], one["id"])):
            bar.append("■ ", STATES.get(one["state"], ""))
        now = [f"{one['role']}" for one in own if one["state"] == "transition"]
        failed = [f"{one['role']}: {one['error']}" for one in own if one["state"] == "error"]
        table.add_row(node, bar, Text("; ".join(failed), "bold red") if failed else Text(", ".join(now)))
    return table
