"""`sysctl.present` on a real kernel, in a network namespace of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError

SCRIPT = """
import json, sys
sys.path.insert(0, {repository!r})
from tests.support.states.state_functions import Run
run = Run()
arguments = json.loads(sys.argv[1])
result = run.apply("sysctl.present", **arguments)
with open("/proc/sys/" + arguments["name"].replace(".", "/")) as file:
    value = file.read().split()
print(json.dumps({{"changes": result.changes, "value": value}}))
"""


def in_namespace(**arguments: object) -> dict[str, object]:
    """Network parameters belong to the network namespace, so the machine's own stay as they are."""
    script = SCRIPT.format(repository=str(Path(__file__).parents[4]))
    command = ["unshare", "--net", sys.executable, "-c", script, json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace is root's")
def test_a_parameter_is_set_in_the_kernel_and_written_down(tmp_path: Path) -> None:
    config = tmp_path / "sysctl.d" / "99.conf"
    report = in_namespace(name="net.ipv4.conf.all.forwarding", value=1, config=str(config))
    assert report["value"] == ["1"]
    assert report["changes"] == {"running": {"old": "0", "new": "1"}, "written": {"old": None, "new": "1"}}
    assert config.read_text() == "net.ipv4.conf.all.forwarding = 1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace is root's")
def test_several_numbers_are_one_value_and_other_lines_stay(tmp_path: Path) -> None:
    config = tmp_path / "sysctl.conf"
    config.write_text(
        "# mine\nnet/ipv4/ip_local_port_range=1 2\nvm.swappiness = 1\nnet.ipv4.ip_local_port_range = 3 4\n"
    )
    report = in_namespace(name="net.ipv4.ip_local_port_range", value="20000  30000", config=str(config))
    assert report["value"] == ["20000", "30000"]
    assert config.read_text() == "# mine\nnet.ipv4.ip_local_port_range = 20000 30000\nvm.swappiness = 1\n"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "x.conf"
    assert Run().check("sysctl.present", name="kernel.pid_max", value=4242424, config=str(config)).changes
    assert not config.exists()


def test_an_unknown_parameter_fails_with_the_path() -> None:
    with pytest.raises(StateError, match=r"no parameter net\.nosuch\.thing"):
        Run().apply("sysctl.present", name="net.nosuch.thing", value=1)


@pytest.mark.parametrize("name", ["nodots", "net..x", "../../etc/passwd", "a/../b"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(StateError, match="is no kernel parameter"):
        Run().apply("sysctl.present", name=name, value=1)
