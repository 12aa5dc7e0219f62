"""Plays a scenario of virtual machines in namespaces of its own, so that whatever ends it leaves nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Killed with this process, however that ends; the namespaces and all in them go with their first one.
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
NAMESPACES = (*DIES_WITH_US, "unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")


def play(scenario: str, folder: Path, images: Path, *arguments: str, module: str = "scenarios") -> None:
    """Play a scenario of `tests.e2e.<module>`; its output is shown, and fails the test if it fails."""
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", f"tests.e2e.{module}", scenario, str(folder), str(images), *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        errors="replace",
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, f"{scenario} failed; its last words are above"
