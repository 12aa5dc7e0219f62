"""Prints the results of commands: tables for people, JSON and YAML for programs.

A command returns its result; the decorator `@prints` gives it the options `--json`, `-o` and `--columns`, and prints
the result. So every command has these options without code of its own.
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
"""state -> its colour, the same everywhere"""

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "json": (Annotated[bool, typer.Option("--json", help="Print JSON.")], False),
    "output": (Annotated[Format, typer.Option("-o", "--output", help="How to print.")], Format.TABLE),
    "columns": (
        Annotated[str | None, typer.Option("--columns", help="These columns, separated by commas.")],
        None,
    ),
}


def prints(
    *columns: str, empty: str = "Nothing.", for_people: Callable[[Any], Any] | None = None
) -> Callable[[Callable[P, Any]], Callable[..., None]]:
    """Decorate a command that returns one object (shown line by line) or several (shown as a table of `columns`).

    `for_people` makes the result better to read for people, or prints it itself and returns None; programs get the
    result as it is. `empty` is printed in place of a table without rows.
    """

    def decorate(work: Callable[P, Any]) -> Callable[..., None]:
        @functools.wraps(work)
        def command(
            *args: Any, json: bool = False, output: Format = Format.TABLE, columns: str | None = None, **named: Any
        ) -> None:
            result = work(*args, **named)
            form = Format.JSON if json else output
            chosen = [name.strip() for name in columns.split(",")] if columns else list(default)
            if form is not Format.TABLE:
                print_data(result, form, chosen if columns else None)
            elif isinstance(result, Mapping) and columns:
                shown = {**result, **(for_people(result) or {})} if for_people else result
                print_table(details(_select_columns(shown, chosen), keep_empty=True))
            elif result is not None:
                shown_result = for_people(result) if for_people else result
                if shown_result is not None:
                    print_for_people(shown_result, chosen, empty)

        default = columns
        own = inspect.signature(work)
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)
            for name, (annotation, value) in _OPTIONS.items()
        ]
        command.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*own.parameters.values(), *added], return_annotation=None
        )
        command.columns = default  # type: ignore[attr-defined]  # for tests that go through all commands
        command.__annotations__ = {**work.__annotations__, **{name: note for name, (note, _) in _OPTIONS.items()}}
        return command

    return decorate


def print_data(result: Any, form: Format, columns: Sequence[str] | None = None) -> None:
    """Print a result as JSON or YAML for programs: all of it, or the given columns."""
    if columns is not None:
        is_list = isinstance(result, list)
        result = [_select_columns(row, columns) for row in result] if is_list else _select_columns(result, columns)
    if form is Format.JSON:
        say(json.dumps(result, indent=2, ensure_ascii=False))
        return
    import yaml

    say(yaml.safe_dump(result, sort_keys=False, allow_unicode=True), end="")


def _select_columns(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    _check_columns(row, columns)
    return {name: row[name] for name in columns}


def _check_columns(row: Row, columns: Iterable[str]) -> None:
    """End the command if the row lacks one of the columns."""
    unknown = [name for name in columns if name not in row]
    if unknown:
        fail(f"There is no column {unknown[0]!r}. There are: {', '.join(sorted(row))}.", Exit.USAGE)


def print_for_people(result: Any, columns: Sequence[str], empty: str = "Nothing.") -> None:
    """Print a result for people: an object line by line, rows as a table."""
    console = open_console()
    if isinstance(result, Mapping):
        print_table(details(result))
    elif result:
        _check_columns(result[0], columns)
        _print_rows(console, result, columns)
    else:
        console.print(empty)


def _print_rows(console: "Console", rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print each row on a line. On a terminal no line is longer than the terminal is wide; elsewhere nothing is cut."""
    if not console.is_terminal:
        print_table(table(rows, columns))
        return
    short_rows = [{name: _shorten(name, row.get(name)) for name in columns} for row in rows]
    fit = fit_columns([_measure_column(short_rows, name) for name in columns], console.width)
    console.print(table(short_rows, list(fit.widths), fit.widths))
    if fit.left_out:
        hint = f"Left out: {', '.join(fit.left_out)} (--columns, --json or a wider terminal)"
        console.print(hint, style="dim")


def _measure_column(rows: Sequence[Row], name: str) -> Column:
    widest = max(cell_width(plain(row[name])) for row in rows)
    return Column(name, max(widest, len(name)), rigid=_is_time(name))


def cell_width(text: str) -> int:
    """Return how many places a text takes on a terminal, with its control characters written out."""
    from rich.cells import cell_len

    return max(map(cell_len, visible(text).split("\n")))


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")


def _shorten(name: str, value: Any) -> Any:
    """Return a value as a terminal shows it: a time to the second (it is UTC), and text in one line."""
    if _is_time(name) and isinstance(value, str):
        return value[:19].replace("T", " ")
    return value if name == "state" else " ".join(plain(value).split())


def table(rows: Sequence[Row], columns: Sequence[str], widths: Mapping[str, int] | None = None) -> Any:
    """Return a table of the rows under their headings; with `widths`, a cell that is wider ends in an ellipsis."""
    from rich.table import Table

    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for name in columns:
        heading = name.upper().replace("_", " ")
        if widths is None:
            grid.add_column(heading, overflow="fold")
        else:
            grid.add_column(heading, overflow="ellipsis", no_wrap=True, width=widths[name])
    for row in rows:
        grid.add_row(*(_cell(name, row.get(name)) for name in columns))
    return grid


def details(row: Row, *, keep_empty: bool = False) -> Any:
    """Return all fields of an object, a line each; empty ones are left out unless `keep_empty` is set."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in row.items():
        if keep_empty or (value not in (None, "", [], {}) and name != "etag"):
            grid.add_row(name.replace("_", " "), _cell(name, value))
    return grid


def _cell(name: str, value: Any) -> Any:
    from rich.text import Text

    return Text(plain(value), style=STYLES.get(value, "") if name == "state" and isinstance(value, str) else "")


def plain(value: Any) -> str:
    """Return a JSON value as plain text for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={plain(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return str(value)
