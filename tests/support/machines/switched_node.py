"""A node for the switch of its network: an /etc, a network and processes of its own, and a networkd that is a script.

Nothing of it outlives the block: the namespaces end with their first process, and that one dies with its parent.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from tests.support.waiting import wait_until

from rackwright.domain.installs.node_network.networkd import FOLDER, PREFIX
from rackwright.reach import network_switch
from rackwright.reach.network_switch import STATE, SwitchAnswer, read_answer

ETC_BYTES = 512 * 1024
BOOT = f"""
mount -t sysfs none /sys && mount -t tmpfs none /run && mount -t tmpfs -o size={ETC_BYTES} none /etc || exit 1
mkdir -p /etc/systemd/network && ip link add eth0 type veth peer name eth1 || exit 1
exec sleep infinity
"""
# Makes the devices of the files that are not there, and leaves all others as they are. Not every kernel has VLANs; a
# macvlan stands on another link as well.
NETWORKCTL = """#!/bin/sh
case $1 in
list) echo "2 eth0 ether routable ${LINK_STATE:-configured}"; exit ;;
reload) [ ! -e /run/reload-fails ] || exit 1 ;;
*) exit ;;
esac
cd /etc/systemd/network || exit 1
for file in 05-rackwright-*.netdev; do
    [ -e "$file" ] || continue
    name=$(sed -n 's/^Name=//p' "$file") kind=$(sed -n 's/^Kind=//p' "$file")
    [ ! -e "/sys/class/net/$name" ] || continue
    case $kind in
    vlan) ip link add link "$(sed -n 's/^Name=//p' $(grep -lx "VLAN=$name" *.network))" name "$name" type macvlan ;;
    *) ip link add name "$name" type "$kind" ;;
    esac
done
"""
Files = dict[str, str]
"""Contents by name, without what all names begin with."""


class SwitchedNode:
    def __init__(self, folder: Path, first: int, programs: Path) -> None:
        self._folder = folder
        self._first = first
        self._programs = programs

    def path(self, inside: str) -> Path:
        """A path on the node, as we see it."""
        return Path(f"/proc/{self._first}/root{inside}")

    def program(self, name: str, script: str) -> None:
        """Give the node a program before all others; empty: take it away again."""
        path = self._programs / name
        path.unlink(missing_ok=True)
        if script:
            path.write_text(script)
            path.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._inside(words), capture_output=True, text=True, check=False)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command as the leader of its process group, as what is detached is."""
        return subprocess.Popen(
            self._inside(["setsid", "--wait", *words]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _inside(self, words: Sequence[str]) -> list[str]:
        path = f"PATH={self._programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        return ["nsenter", "-t", str(self._first), "-m", "-n", "-p", "env", path, *words]

    def is_there(self, device: str) -> bool:
        return self.run("ip", "link", "show", "dev", device).returncode == 0

    def parent_of(self, device: str) -> str:
        return self.run("ip", "-o", "link", "show", "dev", device).stdout.partition(f"{device}@")[2].partition(":")[0]

    # --- files

    def set_files(self, files: Files) -> None:
        for name, content in files.items():
            self.path(f"{FOLDER}/{PREFIX}{name}").write_text(content)

    def files(self) -> Files:
        return {
            path.name.removeprefix(PREFIX): path.read_text()
            for path in self.path(FOLDER).iterdir()
            if path.name.startswith(PREFIX)
        }

    def fill_disk(self) -> None:
        """Leave no room on the disk that /etc is on."""
        with self.path("/etc/filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(512))
            except OSError:
                return

    def empty_disk(self) -> None:
        self.path("/etc/filler").unlink()

    # --- the switch

    def send(self, files: Files) -> str:
        """Put what a server sends into a folder of the node, and return its path there."""
        inside = "/run/sent"
        sent = self.path(inside)
        shutil.rmtree(sent, ignore_errors=True)
        sent.mkdir()
        for name in (network_switch.SWITCH, network_switch.UNIT):
            shutil.copy(network_switch.FOLDER / name, sent)
        for name, content in files.items():
            (sent / (name if name == "resolv.conf" else f"{PREFIX}{name}")).write_text(content)
        return inside

    def arm(self, token: int, files: Files, seconds: int = 1000) -> subprocess.CompletedProcess[str]:
        sent = self.send(files)
        return self.run("sh", f"{sent}/switch", "arm", str(token), str(seconds), sent)

    def switch(self, command: str, token: int | str = "") -> SwitchAnswer:
        return read_answer(self.run("sh", f"{STATE}/switch", command, str(token)).stdout)

    def start_switch(self, command: str, token: int) -> subprocess.Popen[bytes]:
        return self.start("sh", f"{STATE}/switch", command, str(token))

    @property
    def pending(self) -> str:
        path = self.path(f"{STATE}/pending")
        return path.read_text().strip() if path.exists() else ""

    def log(self) -> str:
        return self.path(f"{STATE}/log").read_text()

    def processes(self, part: str) -> list[psutil.Process]:
        """The node's processes with this in their command line."""
        namespace = os.readlink(f"/proc/{self._first}/ns/pid")
        found = []
        for process in psutil.process_iter():
            try:
                if os.readlink(f"/proc/{process.pid}/ns/pid") == namespace and part in " ".join(process.cmdline()):
                    found.append(process)
            except (OSError, psutil.NoSuchProcess):
                continue
        return found


@contextmanager
def switched_node(folder: Path) -> Iterator[SwitchedNode]:
    programs = folder / "programs"
    programs.mkdir(parents=True)
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    started = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", BOOT])
    try:
        children = psutil.Process(started.pid).children
        wait_until(
            lambda: started.poll() is not None or any(child.name() == "sleep" for child in children()),
            "the node is up, or was refused by the kernel",
        )
        node = SwitchedNode(folder, children()[0].pid, programs)
        node.program("networkctl", NETWORKCTL)
        yield node
    finally:
        started.kill()
        started.wait()
