"""Daemons that a server runs as child processes: started, restarted, and why they failed."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE, until

from rackwright.child_output import MOST_OUTPUT
from rackwright.child_process import output_tail
from rackwright.provision.daemon import Daemon, DaemonFailed

REFUSES = '[ ! -e "$0/own.pid" ] || exit 1; echo $$ >"$0/own.pid"; : >"$0/ready"; exec sleep 3600'
"""A daemon that, like Kea and Knot, does not start where a file says that it runs."""


async def test_what_a_killed_one_left_does_not_keep_the_next_from_starting(tmp_path: Path) -> None:
    folder = tmp_path / "daemon"
    folder.mkdir(mode=0o700)
    (folder / "own.pid").write_text(f"{os.getpid()}\n")  # somebody lives under that number

    async def ready() -> bool:
        return (folder / "ready").exists()

    daemon = Daemon(["sh", "-c", REFUSES, str(folder)], folder, folder / "socket", ready, patience=PATIENCE)
    try:
        await daemon.ensure_ready()
        assert daemon.process is not None
        assert (folder / "own.pid").read_text().strip() == str(daemon.process.pid)
    finally:
        await daemon.stop()


async def test_one_that_dies_is_started_again(tmp_path: Path) -> None:
    folder, came_back = tmp_path / "daemon", asyncio.Event()

    async def ready() -> bool:
        return True

    async def on_restart() -> None:
        came_back.set()

    daemon = Daemon(["sleep", "3600"], folder, folder / "socket", ready, patience=PATIENCE)
    daemon.on_restart = on_restart
    try:
        await daemon.ensure_ready()
        assert daemon.process is not None
        first = daemon.process.pid
        await daemon.process.kill()
        async with asyncio.timeout(PATIENCE):
            await came_back.wait()
        assert daemon.process.pid != first
    finally:
        await daemon.stop()


COMPLAINS = 'yes "no free address for a stranger" | head -c "$1"; echo last words; : >"$0/ready"; exec sleep 3600'
"""A daemon that writes as many bytes as strangers have it write."""


async def test_one_that_strangers_have_complain_for_ever_fills_no_disk(tmp_path: Path) -> None:
    folder = tmp_path / "daemon"

    async def ready() -> bool:
        return (folder / "ready").exists()

    command = ["sh", "-c", COMPLAINS, str(folder), str(5 * MOST_OUTPUT)]
    daemon = Daemon(command, folder, folder / "socket", ready, patience=PATIENCE)
    try:
        await daemon.ensure_ready()
        await until(lambda: output_tail(folder / "output.log").endswith("last words"), "all of it is read")
        kept = sum(path.stat().st_size for path in folder.iterdir())
        assert MOST_OUTPUT < kept <= 2 * MOST_OUTPUT
    finally:
        await daemon.stop()


async def test_one_that_is_not_installed_and_one_that_dies_say_why(tmp_path: Path) -> None:
    async def ready() -> bool:
        return False

    cases = {
        "no-such-daemon": (["no-such-daemon", "-c", "x"], "No such file or directory. Is its package installed?"),
        "sh": (["sh", "-c", "echo bad configuration; exit 4"], "sh ended with status 4: bad configuration"),
    }
    for name, (command, reason) in cases.items():
        died = asyncio.Event()
        folder = tmp_path / name
        daemon = Daemon(command, folder, folder / "socket", ready, on_failed_start=died.set, patience=0.01)
        try:
            with pytest.raises(DaemonFailed):
                await daemon.ensure_ready()
            async with asyncio.timeout(PATIENCE):
                await died.wait()
            with pytest.raises(DaemonFailed, match=re.escape(reason)):
                await daemon.ensure_ready()
        finally:
            await daemon.stop()
