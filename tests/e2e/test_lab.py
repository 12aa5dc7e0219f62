"""`rackwright lab`: up, down, and gone with all it had when it is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.conftest import ROOT
from tests.support.waiting import PATIENCE, wait_until

from rackwright.client.access import access_of_home
from rackwright.client.blocking import ApiClient

pytestmark = pytest.mark.pxe

RACKWRIGHT = (sys.executable, "-m", "rackwright")


def _processes(word: str) -> list[int]:
    """Processes that have a word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found.append(int(entry.name))
    return found


class Lab:
    def __init__(self, home: Path, process: subprocess.Popen[str], folder: Path, url: str) -> None:
        self.home, self.process, self.folder, self.url = home, process, folder, url

    def gone(self) -> bool:
        return not self.folder.exists() and not _processes(str(self.folder))


@contextmanager
def _up(home: Path) -> Iterator[Lab]:
    process = subprocess.Popen(
        [*RACKWRIGHT, "lab", "up", "--machines", "1", "--memory", "256"],
        env=os.environ | {"RACKWRIGHT_HOME": str(home)},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" ")[2].strip()
        folder = Path(json.loads((home / "lab.json").read_text())["folder"])
        yield Lab(home, process, folder, url)
    finally:
        process.kill()
        process.wait()
        wait_until(lambda: not folder.exists(), "nothing of the lab is left")


@pytest.fixture
def home(images: Path, tmp_path: Path) -> Path:
    (tmp_path / "images").symlink_to(images)
    return tmp_path


def _machine_runs(lab: Lab) -> bool:
    return any(b"qemu" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _processes(str(lab.folder / "m1")))


def test_a_lab_that_is_killed_leaves_no_process_and_no_file(home: Path) -> None:
    with _up(home) as lab:
        wait_until(lambda: _machine_runs(lab), "its machine runs")
        lab.process.send_signal(signal.SIGKILL)
        lab.process.wait()
        wait_until(lab.gone, "all of it is gone")


def test_a_lab_answers_on_this_host_and_goes_down_when_told(home: Path) -> None:
    with _up(home) as lab:
        wait_until(lambda: _machine_runs(lab), "its machine runs")
        with ApiClient(access_of_home(lab.url, lab.folder / "home"), PATIENCE) as api:
            assert "items" in api.get("/nodes")
        again = subprocess.run(
            [*RACKWRIGHT, "lab", "up"],
            env=os.environ | {"RACKWRIGHT_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (again.returncode, "A lab is up already" in again.stderr) == (1, True)
        down = subprocess.run(
            [*RACKWRIGHT, "lab", "down"],
            env=os.environ | {"RACKWRIGHT_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert down.returncode == 0
        assert lab.process.wait(PATIENCE) == 0
        wait_until(lab.gone, "all of it is gone")
        assert not (home / "lab.json").exists()
