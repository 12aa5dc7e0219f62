"""Programs that read a stranger's image end at their limits, with all that they started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackwright.provision.images.importing import bounded
from rackwright.provision.images.importing.bounded import Limits, require_success, run_bounded
from rackwright.provision.images.packages import BuildFailed


def _run(work: Path, script: str, limits: Limits, stdin: bytes = b"") -> bounded.Finished:
    return run_bounded(["sh", "-c", script], work, limits, stdin)


def test_what_reaches_no_limit_is_run_to_its_end(tmp_path: Path) -> None:
    finished = _run(tmp_path, 'cat; echo "$TMPDIR" >&2; exit 3', Limits(), b"given")
    assert finished == bounded.Finished(3, b"given", str(tmp_path))
    with pytest.raises(BuildFailed, match="sh ended with status 3"):
        require_success("sh", finished)
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"did not end within 0.1 s"):
        _run(tmp_path, f"sleep 1000 & echo $! >{tmp_path}/pid; wait", Limits(seconds=0.1))
    if (tmp_path / "pid").exists():
        _await_end(int((tmp_path / "pid").read_text() or 0))


def test_it_ends_with_the_process_that_ran_it(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from rackwright.provision.images.importing.bounded import Limits, run_bounded
run_bounded(["sh", "-c", "echo $$ >{tmp_path}/aside; mv {tmp_path}/aside {tmp_path}/pid; exec sleep 1000"],
    Path({str(tmp_path)!r}), Limits())
"""
    ours = subprocess.Popen([sys.executable, "-c", script])
    while not (tmp_path / "pid").exists():
        assert ours.poll() is None
        time.sleep(0.01)
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    _await_end(int((tmp_path / "pid").read_text()))


def _await_end(pid: int) -> None:
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)


def test_output_is_bounded(tmp_path: Path) -> None:
    for where in ("", " >&2"):
        with pytest.raises(BuildFailed, match="said more than"):
            _run(tmp_path, f"yes{where}", Limits(output=1 << 20, file_size=64 << 20))


def test_memory_is_bounded(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "x = bytearray(8 << 30)"]
    assert "MemoryError" in run_bounded(command, tmp_path, Limits(memory=1 << 30)).errors


def test_a_file_is_bounded(tmp_path: Path) -> None:
    finished = _run(tmp_path, f"exec head -c 2000000 /dev/zero >{tmp_path}/file", Limits(file_size=1_000_000))
    assert finished.status == -signal.SIGXFSZ
    assert os.path.getsize(tmp_path / "file") == 1_000_000


def test_a_disk_that_gets_full_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        assert folder == tmp_path
        raise BuildFailed("The disk is full")

    monkeypatch.setattr(bounded, "require_rest", refuse)
    with pytest.raises(BuildFailed, match="The disk is full"):
        _run(tmp_path, "exec sleep 1000", Limits(seconds=1000))
