"""Daemons that a server runs as its children."""

import os
from pathlib import Path

from tests.support.waiting import PATIENCE

from rackwright.provision.daemon import Daemon

REFUSES = '[ ! -e "$0/own.pid" ] || exit 1; echo $$ >"$0/own.pid"; : >"$0/ready"; exec sleep 3600'
"""As Kea and Knot do: it does not start where a file says that it runs."""


async def test_what_a_killed_one_left_does_not_keep_the_next_from_starting(tmp_path: Path) -> None:
    folder = tmp_path / "daemon"
    folder.mkdir(mode=0o700)
    (folder / "own.pid").write_text(f"{os.getpid()}\n")  # somebody lives under that number

    async def ready() -> bool:
        return (folder / "ready").exists()

    daemon = Daemon(["sh", "-c", REFUSES, str(folder)], folder, folder / "socket", ready, patience=PATIENCE)
    try:
        await daemon.ensure()
        assert daemon.process is not None
        assert (folder / "own.pid").read_text().strip() == str(daemon.process.pid)
    finally:
        await daemon.stop()
