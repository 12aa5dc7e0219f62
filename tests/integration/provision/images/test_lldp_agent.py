"""What sledgehammer hears of its neighbours: its own shell, socat and real frames, on cables in a namespace."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackwright.domain.machines.lldp import read_neighbours

ROOT = Path(__file__).parents[4]
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
LEAF_1 = {"chassis": "02:00:77:00:00:00", "port": "Ethernet7", "name": "leaf-1"}
LEAF_2 = {"chassis": "02:00:77:00:00:01", "port": "Ethernet2", "name": "leaf-2"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The inventory before anything was said, after a switch was heard, with the cable out, and with another switch."""
    folder = tmp_path_factory.mktemp("wire")
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", "tests.support.machines.lldp_wire", str(folder)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_inventory_does_not_wait_for_neighbours(seen: Any) -> None:
    assert (seen["before"]["serial"], seen["before"]["lldp"]) == ("S1", {})


def test_a_switch_is_heard_on_the_link_it_speaks_on_and_on_no_other(seen: Any) -> None:
    assert read_neighbours(seen["heard"]["lldp"]) == {"eth0": LEAF_1}


def test_a_cable_that_is_touched_makes_the_switch_forgotten(seen: Any) -> None:
    assert seen["unplugged"]["lldp"] == {}


def test_another_switch_is_heard_on_the_same_link(seen: Any) -> None:
    assert read_neighbours(seen["elsewhere"]["lldp"]) == {"eth0": LEAF_2}
