"""How long it takes until a command has started: every noun's --help, beside `rackwright --help` itself.

The best of several starts of each, as a process of its own: what a person waits for before a server is asked.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rackwright.cli.main import NOUNS
from report import at_most, emit

RACKWRIGHT = Path(sys.executable).with_name("rackwright")


def seconds(*words: str, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([RACKWRIGHT, *words], check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return round(best, 4)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=5)
    repeats = arguments.parse_args().repeats
    whole = seconds("--help", repeats=repeats)
    nouns = {noun: seconds(noun, "--help", repeats=repeats) for noun in NOUNS}
    slowest = max(nouns, key=lambda noun: nouns[noun])
    emit(
        "cli",
        {"help_seconds": whole, "noun_seconds": nouns},
        [
            at_most("rackwright --help, seconds", whole, 0.25),
            at_most(f"the slowest noun ({slowest}) over that, seconds", round(nouns[slowest] - whole, 4), 0.1),
        ],
    )


if __name__ == "__main__":
    main()
