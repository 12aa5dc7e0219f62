"""How what the server says reaches the person: tables to read, JSON and YAML to go on with.

A command returns what it found; `@prints` gives it the options `--json`, `-o` and `--columns`, and prints. So every
command has them, and none has to think of them.
"""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from rackwright.cli.output.exits import Exit, fail
from rackwright.cli.output.table_fit import GAP, Column, fit_columns
from rackwright.cli.output.terminal import open_console, print_table, say, visible

if TYPE_CHECKING:
    from rackwright.cli.output.terminal import Console

P = ParamSpec("P")
Row = Mapping[str, Any]


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


STYLES = {
    "active": "green",
    "succeeded": "green",
    "committed": "green",
    "transition": "yellow",
    "running": "yellow",
    "accepted": "yellow",
    "held": "yellow",
    "todo": "cyan",
    "queued": "cyan",
    "blocked": "blue",
    "proposed": "magenta",
    "error": "bold red",
    "failed": "bold red",
    "lost": "bold red",
    "cancelled": "red",
}
"""One colour a state, the same everywhere."""

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "json": (Annotated[bool, typer.Option("--json", help="Print JSON.")], False),
    "output": (Annotated[Format, typer.Option("-o", "--output", help="How to print.")], Format.TABLE),
    "columns": (
        Annotated[str | None, typer.Option("--columns", help="These columns, separated by commas.")],
        None,
    ),
}


def prints(
    *columns: str, empty: str = "Nothing.", people: Callable[[Any], Any] | None = None
) -> Callable[[Callable[P, Any]], Callable[..., None]]:
    """The decorator of a command that returns one object (shown line by line) or several (shown as a table).

    `people` makes what is found into what is better to read; programs get what is found.
    """

    def decorate(work: Callable[P, Any]) -> Callable[..., None]:
        @functools.wraps(work)
        def command(
            *args: Any, json: bool = False, output: Format = Format.TABLE, columns: str | None = None, **named: Any
        ) -> None:
            found = work(*args, **named)
            form = Format.JSON if json else output
            wanted = [name.strip() for name in columns.split(",")] if columns else list(default)
            if form is not Format.TABLE:
                print_data(found, form, wanted if columns else None)
            elif isinstance(found, Mapping) and columns:
                shown = {**found, **people(found)} if people else found
                print_table(details(_only(shown, wanted), keep_empty=True))
            elif found is not None:
                print_for_people(people(found) if people else found, wanted, empty)

        default = columns
        own = inspect.signature(work)
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)
            for name, (annotation, value) in _OPTIONS.items()
        ]
        command.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*own.parameters.values(), *added], return_annotation=None
        )
        command.columns = default  # type: ignore[attr-defined]  # what a table of it shows, for who walks the commands
        command.__annotations__ = {**work.__annotations__, **{name: note for name, (note, _) in _OPTIONS.items()}}
        return command

    return decorate


def print_data(found: Any, form: Format, columns: Sequence[str] | None = None) -> None:
    """For programs: all there is, or the columns asked for."""
    if columns is not None:
        found = [_only(row, columns) for row in found] if isinstance(found, list) else _only(found, columns)
    if form is Format.JSON:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    import yaml

    say(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="")


def _only(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    _check(row, columns)
    return {name: row[name] for name in columns}


def _check(row: Row, columns: Iterable[str]) -> None:
    unknown = [name for name in columns if name not in row]
    if unknown:
        fail(f"There is no column {unknown[0]!r}. There are: {', '.join(sorted(row))}.", Exit.USAGE)


def print_for_people(found: Any, columns: Sequence[str], empty: str = "Nothing.") -> None:
    console = open_console()
    if isinstance(found, Mapping):
        print_table(details(found))
    elif found:
        _check(found[0], columns)
        _print_table(console, found, columns)
    else:
        console.print(empty)


def _print_table(console: "Console", rows: Sequence[Row], columns: Sequence[str]) -> None:
    """A line a row. On a terminal none is longer than that is wide; elsewhere nothing is cut."""
    if not console.is_terminal:
        print_table(table(rows, columns))
        return
    short = [{name: _short(name, row.get(name)) for name in columns} for row in rows]
    fit = fit_columns([_column(short, name) for name in columns], console.width)
    console.print(table(short, list(fit.widths), fit.widths))
    if fit.left_out:
        hint = f"Left out: {', '.join(fit.left_out)} (--columns, --json or a wider terminal)"
        console.print(hint, style="dim")


def _column(rows: Sequence[Row], name: str) -> Column:
    widest = max(cell_width(plain(row[name])) for row in rows)
    return Column(name, max(widest, len(name)), rigid=_is_time(name))


def cell_width(text: str) -> int:
    """Return how many places a text takes on a terminal, with its control characters written out."""
    from rich.cells import cell_len

    return max(map(cell_len, visible(text).split("\n")))


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def _short(name: str, value: Any) -> Any:
    """On a terminal a time is told to the second (it is UTC), and text in one line."""
    if _is_time(name) and isinstance(value, str):
        return value[:19].replace("T", " ")
    return value if name == "state" else " ".join(plain(value).split())


def table(rows: Sequence[Row], columns: Sequence[str], widths: Mapping[str, int] | None = None) -> Any:
    """The rows under their headings; with `widths` what is wider ends in an ellipsis."""
    from rich.table import Table

    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for name in columns:
        heading = name.upper().replace("_", " ")
        if widths is None:
            made.add_column(heading, overflow="fold")
        else:
            made.add_column(heading, overflow="ellipsis", no_wrap=True, width=widths[name])
    for row in rows:
        made.add_row(*(_cell(name, row.get(name)) for name in columns))
    return made


def details(row: Row, *, keep_empty: bool = False) -> Any:
    """Everything about one thing, a line each; what is empty is left out, unless somebody asked for it."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in row.items():
        if keep_empty or (value not in (None, "", [], {}) and name != "etag"):
            made.add_row(name.replace("_", " "), _cell(name, value))
    return made


def _cell(name: str, value: Any) -> Any:
    from rich.text import Text

    return Text(plain(value), style=STYLES.get(value, "") if name == "state" and isinstance(value, str) else "")


def plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={plain(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return str(value)
