"""The demo as a person runs it: a process of its own, from the first line to nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.processes import processes_naming
from tests.support.waiting import PATIENCE, wait_until

RACKWRIGHT = Path(sys.executable).with_name("rackwright")


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [RACKWRIGHT, "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
    )


def test_machines_go_from_discovery_to_an_installed_workload(tmp_path: Path) -> None:
    with _start(tmp_path, "--machines", "3", "--until-active") as demo:
        out, err = demo.communicate(timeout=2 * PATIENCE)
    assert (demo.returncode, err) == (0, "")
    assert "3 of 3 machines discovered" in out
    assert "3 machines to install" in out
    summary = re.search(r"Everything is ACTIVE: 3 nodes, (\d+) noderoles, (\d+) runs, [\d.]+ seconds\.", out)
    assert summary is not None, out
    assert int(summary[2]) >= int(summary[1]) > 3
    assert list(tmp_path.iterdir()) == []


def test_a_new_barclamp_converges_on_the_demos_machines_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with _start(tmp_path / "demo", "--machines", "1") as demo:
        assert demo.stdout is not None
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if "Everything is ACTIVE" in line:
                break
        exports = re.search(r"export RACKWRIGHT_URL=(\S+) RACKWRIGHT_HOME=(\S+)", "".join(lines))
        assert exports is not None, "".join(lines)
        environment = os.environ | {"RACKWRIGHT_URL": exports[1], "RACKWRIGHT_HOME": exports[2]}
        try:
            nodes = _json(environment, "node", "list")
            [machine] = [node["name"] for node in nodes if not node["admin"] and not node["system"]]
            for words in (
                ("barclamp", "new", str(tmp_path / "greeter"), "--jig", "lab"),
                ("barclamp", "check", str(tmp_path / "greeter")),
                ("barclamp", "import", str(tmp_path / "greeter")),
                ("deployment", "propose", "demo"),
                ("node", "bind", machine, "greeter-server", "demo"),
                ("deployment", "commit", "demo", "--yes"),
                ("anneal", "watch", "--deployment", "demo"),
            ):
                _run(environment, *words)
            noderoles = _json(environment, "noderole", "list", "-f", f"node={machine}")
            states = {noderole["role"]: noderole["state"] for noderole in noderoles}
            assert (states["greeter-base"], states["greeter-server"]) == ("active", "active")
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=PATIENCE)


def _run(environment: dict[str, str], *words: str) -> str:
    ended = subprocess.run(
        [RACKWRIGHT, *words], env=environment, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def _json(environment: dict[str, str], *words: str) -> Any:
    return json.loads(_run(environment, *words, "--json"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_it_runs_until_it_is_stopped_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with _start(tmp_path, "--machines", "1") as demo:
        assert demo.stdout is not None
        address = demo.stdout.readline().split()[2].rstrip(";")
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 200
        demo.send_signal(number)
        out, err = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, err) == (0, "")
    assert "Stopped." in out
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not processes_naming(str(tmp_path)), "its processes are gone")


def test_a_wrong_number_of_machines_is_refused_with_the_range(tmp_path: Path) -> None:
    with _start(tmp_path, "--machines", "0") as demo:
        _, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 2
    assert "1" in err
    assert "Traceback" not in err
