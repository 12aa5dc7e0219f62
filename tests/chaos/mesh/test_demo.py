"""`rackwright mesh demo` as a person uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.chaos


def test_the_demo_comes_up_can_be_hurt_and_healed_and_leaves_nothing(tmp_path: Path) -> None:
    prefix = f"rw{os.getpid()}-d"
    environment = {**os.environ, "RACKWRIGHT_MESH_DEMO_DIR": str(tmp_path / "demo")}
    environment |= {"RACKWRIGHT_MESH_DEMO_PREFIX": prefix, "COLUMNS": "160"}

    def demo(*arguments: str) -> str:
        command = [sys.executable, "-m", "rackwright", "mesh", "demo", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        # On a busy machine somebody may be suspected at the moment of the look; nobody stays so.
        assert "of 5 servers alive" in demo("up")
        wait_until(lambda: "5 of 5 servers alive" in demo("members"), "all are seen alive", every=1.0)
        demo("kill", "3")
        wait_until(lambda: "4 of 5 servers alive" in demo("members"), "the killed one is seen dead", every=1.0)
        assert "of 5 servers alive" in demo("heal")
        wait_until(lambda: "5 of 5 servers alive" in demo("members"), "all are seen alive again", every=1.0)
    finally:
        demo("down")
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert prefix not in namespaces
    assert not (tmp_path / "demo").exists()
