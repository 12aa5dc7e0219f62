"""Prints to a person's terminal, with control characters escaped. All output of commands goes through this module.

What is shown often comes from strangers: a machine's inventory, the output of a script, a reason for a failure. A
terminal obeys control characters in it: they could overwrite earlier lines, retitle the window, or type. So none
reaches the terminal; each is shown as JSON would write it.
"""

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console as Console
    from rich.console import RenderableType

# C0 but tab and newline, DEL and C1; and what makes text run the other way, so that it reads as something else.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


UNLIMITED_WIDTH = 1_000_000
"""Columns for output that is piped to a program or a file, and so has no terminal that it must fit."""


def visible(text: str) -> str:
    """Return the text with its control characters written out. JSON stays the same JSON."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def say(text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text for a person, or for a program that reads lines or JSON."""
    print(visible(str(text)), end=end, file=file, flush=flush)


def say_output(text: str) -> None:
    """Print the output of a program: to a terminal with control characters escaped, elsewhere as it is."""
    if sys.stdout.isatty():
        text = visible(text.replace("\r\n", "\n").replace("\r", "\n"))
    sys.stdout.write(text)
    sys.stdout.flush()


def open_console(*, soft_wrap: bool = False, stderr: bool = False) -> "Console":
    """Return a console for tables and colours. It escapes control characters and does not colour numbers."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Harmless(Console):
        """A console that escapes controls in text; its own control sequences are separate segments."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

    return Harmless(highlight=False, soft_wrap=soft_wrap, stderr=stderr)


def print_table(table: "RenderableType") -> None:
    """Print a table, or anything with columns: no wider than the terminal, and elsewhere as wide as it needs."""
    console = open_console()
    if not console.is_terminal:
        console.width = UNLIMITED_WIDTH
    console.print(table, soft_wrap=not console.is_terminal)
