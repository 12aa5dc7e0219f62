"""Connects a person's terminal to a machine's serial line: what is typed goes there as it is, until Ctrl-]."""

import contextlib
import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

END = b"\x1d"
"""Ctrl-]"""


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode: every key is read at once, and none is interpreted here."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def talk(serial: Path) -> None:
    """Pass bytes between the terminal and a serial line until the person or the machine ends it."""
    with socket.socket(socket.AF_UNIX) as line, _raw_terminal():
        line.connect(str(serial))
        sources = [line.fileno(), sys.stdin.fileno()]
        while True:
            for ready in select.select(sources, [], [])[0]:
                data = os.read(ready, 4096)
                if ready == line.fileno():
                    if not data:
                        return
                    os.write(sys.stdout.fileno(), data)
                elif END in data:
                    return
                elif not data:
                    sources.remove(ready)  # nothing more will be typed, but the machine may go on
                else:
                    line.sendall(data)
