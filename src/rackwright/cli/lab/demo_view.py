"""The view of the demo: a live table on a terminal, a line for each change elsewhere."""

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
"""The most machines whose noderoles are shown; of more, only the counts are."""


class View:
    """Prints lines that stay, and shows below them what changes."""

    def __init__(self, machines: int, console: "Console | None" = None) -> None:
        self.console = console or open_console(soft_wrap=True)
        self._live = Live(console=self.console, refresh_per_second=8) if self.console.is_terminal else None
        self.wants_rows = self._live is not None and machines <= MOST_ROWS
        """Whether single noderoles are shown, and not only their counts."""
        self._last_line = ""

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

    def show_progress(self, line: str) -> None:
        """Show how far something has come, in place of the line before."""
        if self._live is not None:
            self._live.update(Text(line))
        elif line != self._last_line:
            self.console.print(line)
        self._last_line = line

    def show(self, counts: Mapping[str, int], noderoles: Sequence[dict[str, Any]]) -> None:
        """Show how many noderoles are in which state and, if there are rows, all noderoles as they are now."""
        line = ", ".join(f"{counts[state]} {state.upper()}" for state in STATES if counts.get(state))
        if self._live is None:
            self.show_progress(line)
        else:
            table = [_make_table(noderoles)] if self.wants_rows else []
            self._live.update(Group(*table, Text(line)))


def _make_table(noderoles: Sequence[dict[str, Any]]) -> Table:
    table = Table("Node", "Noderoles", "Now", box=None, pad_edge=False)
    nodes: dict[str, list[dict[str, Any]]] = {}
    for noderole in noderoles:
        nodes.setdefault(noderole["node"], []).append(noderole)
    for node, bound in sorted(nodes.items()):
        bar = Text()
        for noderole in sorted(bound, key=lambda noderole: (noderole["cohort"], noderole["id"])):
            bar.append("■ ", STATES.get(noderole["state"], ""))
        running = [noderole["role"] for noderole in bound if noderole["state"] == "transition"]
        failed = [f"{noderole['role']}: {noderole['error']}" for noderole in bound if noderole["state"] == "error"]
        table.add_row(node, bar, Text("; ".join(failed), "bold red") if failed else Text(", ".join(running)))
    return table
