"""rackwright top: the whole system on one screen, live."""

import time
from collections import Counter, deque
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.answers import STYLES, table
from rackwright.cli.output.terminal import open_console
from rackwright.cli.watch import ORDER

LOOK = 1.0
"""Seconds between two looks."""
KEPT = 60
"""Looks whose throughput is remembered."""
BARS = " ▁▂▃▄▅▆▇█"


def main(argv: list[str]) -> int:
    app = make_app(no_args_is_help=False)
    app.command()(top)
    return int(app(args=argv, prog_name="rackwright top", standalone_mode=False) or 0)


def top(once: Annotated[bool, typer.Option(help="Show it once and end.")] = False) -> None:
    """Everything at a glance: nodes, deployments, the queue, what runs, what failed. Ctrl-C ends it."""
    from rich.live import Live

    client, screen = Client(), Screen()
    if once:
        open_console().print(screen.look(client))
        return
    try:
        with Live(console=open_console(), screen=True, refresh_per_second=4) as live:
            while True:
                live.update(screen.look(client), refresh=True)
                time.sleep(LOOK)
    except KeyboardInterrupt:
        return


class Screen:
    """What was seen before, for what is shown of the flow."""

    def __init__(self) -> None:
        self._last_run = 0
        self._flow: deque[int] = deque(maxlen=KEPT)

    def look(self, client: Client) -> Any:
        status = client.get("/anneal")
        running = client.pages("/runs", 15, state=["running", "accepted"], sort="id")
        failed = client.pages("/node_roles", 10, state="error", sort="-id")
        newest = client.pages("/runs", 1, sort="-id")
        self._count(newest[0]["id"] if newest else 0)
        return self._view(status, client.pages("/deployments"), _nodes(client), running, failed)

    def _count(self, newest: int) -> None:
        if self._last_run:
            self._flow.append(max(0, newest - self._last_run))
        self._last_run = newest

    def _view(
        self,
        status: dict[str, Any],
        deployments: list[dict[str, Any]],
        nodes: Counter[str],
        running: list[dict[str, Any]],
        failed: list[dict[str, Any]],
    ) -> Any:
        from rich.console import Group
        from rich.rule import Rule
        from rich.text import Text

        flow = Text(f"{_plot(self._flow)}  {self._flow[-1] if self._flow else 0} runs/s", style="cyan")
        parts: list[Any] = [
            _counts("noderoles", status["noderoles"]),
            _counts("nodes", nodes),
            Text.assemble(("runs       ", "bold"), flow, f"   cap {status['cap']}"),
            Rule("deployments", align="left", style="dim"),
            table(deployments, ("name", "parent", "state", "held", "noderoles")),
            Rule(f"running ({len(running)})", align="left", style="dim"),
        ]
        if running:
            parts.append(table(running, ("id", "role", "node", "jig", "state", "attempt")))
        if failed:
            parts += [Rule("in ERROR", align="left", style="red"), table(failed, ("id", "role", "node", "error"))]
        return Group(*parts)


def _nodes(client: Client) -> Counter[str]:
    return Counter(one["state"] for one in client.pages("/nodes", fields="state", system=False))


def _counts(what: str, counts: Any) -> Any:
    from rich.text import Text

    line = Text(f"{what:<11}", style="bold")
    for state in ORDER:
        if counts.get(state):
            line.append(f"{counts[state]} {state.upper()}  ", style=STYLES[state])
    return line


def _plot(values: deque[int]) -> str:
    most = max(values, default=0) or 1
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)
