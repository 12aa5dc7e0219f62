"""`rackwright top`: the whole system on one screen, live."""

import time
from collections import Counter, deque
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.printing import STYLES, table
from rackwright.cli.output.terminal import open_console
from rackwright.cli.watch import ORDER

POLL_SECONDS = 1.0
REMEMBERED_POLLS = 60
"""How many polls back the plot of throughput goes."""
BARS = " ▁▂▃▄▅▆▇█"


def main(argv: list[str]) -> int:
    """Run `rackwright top`."""
    app = make_app(no_args_is_help=False)
    app.command()(top)
    return int(app(args=argv, prog_name="rackwright top", standalone_mode=False) or 0)


def top(once: Annotated[bool, typer.Option(help="Show it once and end.")] = False) -> None:
    """Everything at a glance: nodes, deployments, the queue, what runs, what failed. Ctrl-C ends it."""
    from rich.live import Live

    client, screen = Client(), Screen()
    if once:
        open_console().print(screen.read_and_render(client))
        return
    try:
        with Live(console=open_console(), screen=True, refresh_per_second=4) as live:
            while True:
                live.update(screen.read_and_render(client), refresh=True)
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return


class Screen:
    """The screen of `top`. It remembers how many runs began between polls, to plot the throughput."""

    def __init__(self) -> None:
        self._last_run_id = 0
        self._runs_per_poll: deque[int] = deque(maxlen=REMEMBERED_POLLS)

    def read_and_render(self, client: Client) -> Any:
        """Read the state of the system, and return it as something to be drawn."""
        status = client.get("/anneal")
        running = client.pages("/runs", 15, state=["running", "accepted"], sort="id")
        failed = client.pages("/node_roles", 10, state="error", sort="-id")
        newest = client.pages("/runs", 1, sort="-id")
        self._count_runs(newest[0]["id"] if newest else 0)
        return self._render(status, client.pages("/deployments"), _count_nodes(client), running, failed)

    def _count_runs(self, newest_id: int) -> None:
        if self._last_run_id:
            self._runs_per_poll.append(max(0, newest_id - self._last_run_id))
        self._last_run_id = newest_id

    def _render(
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

        rates = self._runs_per_poll
        throughput = Text(f"{_plot(rates)}  {rates[-1] if rates else 0} runs/s", style="cyan")
        parts: list[Any] = [
            _counts_line("noderoles", status["noderoles"]),
            _counts_line("nodes", nodes),
            Text.assemble(("runs       ", "bold"), throughput, f"   cap {status['cap']}"),
            Rule("deployments", align="left", style="dim"),
            table(deployments, ("name", "parent", "state", "held", "noderoles")),
            Rule(f"running ({len(running)})", align="left", style="dim"),
        ]
        if running:
            parts.append(table(running, ("id", "role", "node", "jig", "state", "attempt")))
        if failed:
            parts += [Rule("in ERROR", align="left", style="red"), table(failed, ("id", "role", "node", "error"))]
        return Group(*parts)


def _count_nodes(client: Client) -> Counter[str]:
    return Counter(node["state"] for node in client.pages("/nodes", fields="state", system=False))


def _counts_line(title: str, counts: Any) -> Any:
    from rich.text import Text

    line = Text(f"{title:<11}", style="bold")
    for state in ORDER:
        if counts.get(state):
            line.append(f"{counts[state]} {state.upper()}  ", style=STYLES[state])
    return line


def _plot(values: deque[int]) -> str:
    most = max(values, default=0) or 1
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)
