"""Sledgehammer's listener on real cables.

Run it as `python -m tests.support.machines.lldp_wire FOLDER`, in namespaces of its own.

It runs the agent's own shell, with no programs but those of the image. What it saw is on its standard output, as JSON:
the inventory after each thing that was done. It is the first process of its PID namespace, so nothing outlives it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

from rackwright.lab.lldp import NEAREST_BRIDGE, send_frame, switch_frame

HEARD = Path("/run/lldp/eth0")


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


class Agent:
    """A shell that has read the agent's files, where there is nothing but busybox and socat."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "programs"
        programs.mkdir()
        busybox, socat = shutil.which("busybox"), shutil.which("socat")
        assert busybox is not None, "busybox is missing. Install it: scripts/packages"
        assert socat is not None, "socat is missing. Install it: scripts/packages"
        _run(busybox, "--install", "-s", str(programs))
        (programs / "socat").symlink_to(socat)
        self._shell = str(programs / "sh")
        self._environment = {"PATH": str(programs)}
        source = files("rackwright.provision.images") / "agent"
        parts = "".join(f". {source / name}\n" for name in ("common", "inventory", "lldp"))
        self._read = f"agent_folder={source}\n{parts}"

    def start(self, script: str) -> None:
        """It ends with this process, which is the first here."""
        subprocess.Popen([self._shell, "-c", self._read + script], env=self._environment)

    def inventory(self) -> Any:
        """As it would be sent now."""
        said = subprocess.run(
            [self._shell, "-c", self._read + 'inventory "$(neighbours)"'],
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return json.loads(said.stdout)


def _plug_in() -> None:
    """Two links, each with a switch at its other end. What is in /sys and /run is of these namespaces alone."""
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/lldp").mkdir()
    Path("/run/hardware").write_text('"serial":"S1"')
    for number in (0, 1):
        _run("ip", "link", "add", f"eth{number}", "type", "veth", "peer", "name", f"switch{number}")
        _run("ip", "link", "set", f"eth{number}", "up")
        _run("ip", "link", "set", f"switch{number}", "up")


def _joined(link: str) -> bool:
    """Whether a network card is told to take what is sent to the nearest bridge."""
    lines = Path("/proc/net/dev_mcast").read_text().splitlines()
    return any(words[1] == link and words[4] == NEAREST_BRIDGE.hex() for words in map(str.split, lines))


def _said(machine: int) -> Callable[[], bool]:
    """The switch says so once more; whether that was heard."""

    def heard() -> bool:
        send_frame("switch0", switch_frame(machine))
        return HEARD.exists()

    return heard


def main(folder: Path) -> None:
    _plug_in()
    agent = Agent(folder)
    seen = {"before": agent.inventory()}
    agent.start("hear eth0 &\nhear eth1 &\nwait\n")
    wait_until(lambda: _joined("eth0") and _joined("eth1"), "both links are listened to")
    wait_until(_said(7), "the switch is heard")
    seen["heard"] = agent.inventory()
    _run("ip", "link", "set", "switch0", "down")
    wait_until(lambda: not HEARD.exists(), "the switch is forgotten")
    seen["unplugged"] = agent.inventory()
    _run("ip", "link", "set", "switch0", "up")
    wait_until(_said(50), "the other switch is heard")
    seen["elsewhere"] = agent.inventory()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    os.chdir("/")
    main(Path(sys.argv[1]))
