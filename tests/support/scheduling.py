"""Which test runs where, when pytest has several workers: a file on one of them, and heavy files one after the other.

A heavy file needs a processor of its own: it emulates machines, or runs servers for dozens of them. Two of these beside
each other would slow each other down for minutes, and everything else with them. Of the rest, long files come before
short ones: a long one that begins last leaves the other workers with nothing to do.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

HEAVY = ("tests/e2e/test_pxe.py", "tests/e2e/test_lab.py", "tests/chaos/test_servers.py", "tests/soak/test_servers.py")
LONG = ("tests/chaos/", "tests/e2e/", "tests/integration/attacks/", "tests/integration/mesh/")
"""Folders of files that start clusters, servers or browsers, and take many seconds each."""


def is_heavy(nodeid: str) -> bool:
    return nodeid.split("::", 1)[0] in HEAVY


def heavy_first(items: list[pytest.Item]) -> None:
    """Put heavy tests first, so that one worker begins with all of them while the others do the rest."""
    items.sort(key=lambda item: turn_of(item.nodeid))


def turn_of(nodeid: str) -> int:
    """Which tests come before which others: the lower number first."""
    if is_heavy(nodeid):
        return 0
    return 1 if nodeid.startswith(LONG) else 2


class HeavyFilesTogether(LoadFileScheduling):
    """Like `--dist loadfile`, but all heavy files are one unit of work, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return "heavy" if is_heavy(nodeid) else super()._split_scope(nodeid)
