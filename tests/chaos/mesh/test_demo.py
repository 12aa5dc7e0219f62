"""`rackwright mesh demo` as a person uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackwright.mesh.fleet import wait_until

pytestmark = pytest.mark.chaos


def test_the_demo_comes_up_can_be_hurt_and_healed_and_leaves_nothing(tmp_path: Path) -> None:
    prefix = f"rw{os.getpid()}-d"
    environment = {**os.environ, "RACKWRIGHT_MESH_DEMO_DIR": str(tmp_path / "demo")}
    environment |= {"RACKWRIGHT_MESH_DEMO_PREFIX": prefix, "COLUMNS": "160"}

    def demo(*arguments: str) -> str:
        command = [sys.executable, "-m", "rackwright", "mesh", "demo", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert "5 of 5 servers alive" in demo("up")
        demo("kill", "3")
        wait_until(lambda: "4 of 5 servers alive" in demo("members"), 20, "the killed one is not seen dead")
        assert "5 of 5 servers alive" in demo("heal")
    finally:
        demo("down")
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert prefix not in namespaces
    assert not (tmp_path / "demo").exists()
