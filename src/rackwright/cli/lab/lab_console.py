"""A person at a machine's serial line: what is typed goes there as it is, until Ctrl-]."""

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


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key at once, and none interpreted here."""
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
    """Until the person or the machine ends it."""
    with socket.socket(socket.AF_UNIX) as line, _raw():
        line.connect(str(serial))
        listening = [line.fileno(), sys.stdin.fileno()]
        while True:
            for ready in select.select(listening, [], [])[0]:
                said = os.read(ready, 4096)
                if ready == line.fileno():
                    if not said:
                        return
                    os.write(sys.stdout.fileno(), said)
                elif END in said:
                    return
                elif not said:
                    listening.remove(ready)  # nothing more will be typed, but the machine may go on
                else:
                    line.sendall(said)
