"""The one way to a person's terminal. What is shown there often comes from strangers: a machine's inventory, the output
of a script, a reason for a failure. A terminal obeys control characters in it: they could overwrite what was said
before, retitle the window, or type. So none reaches it; each is shown as JSON would write it.
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


AS_WIDE_AS_IT_LIKES = 1_000_000
"""Columns. What is piped to a program or a file has no terminal that it must fit."""


def visible(text: str) -> str:
    """The text with its control characters written out. JSON stays the same JSON."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def say(text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print for a person, or for a program that reads lines or JSON."""
    print(visible(str(text)), end=end, file=file, flush=flush)


def say_output(text: str) -> None:
    """Print what a program somewhere printed: to a terminal harmlessly, elsewhere as it is."""
    if sys.stdout.isatty():
        text = visible(text.replace("\r\n", "\n").replace("\r", "\n"))
    sys.stdout.write(text)
    sys.stdout.flush()


def open_console(*, soft_wrap: bool = False) -> "Console":
    """For tables and colours. Nothing in what it is given is a control character or a number to be coloured."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Harmless(Console):
        """Its own control sequences are segments apart, so those in text are not its own."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

    return Harmless(highlight=False, soft_wrap=soft_wrap)


def print_table(table: "RenderableType") -> None:
    """Print a table, or whatever has columns: no wider than a terminal is, and elsewhere as wide as it likes to be."""
    console = open_console()
    if not console.is_terminal:
        console.width = AS_WIDE_AS_IT_LIKES
    console.print(table, soft_wrap=not console.is_terminal)
