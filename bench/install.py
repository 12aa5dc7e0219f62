"""From power-on to discovered, and to installed: with the product, and with the same parts and no product.

Real machines, emulated, in namespaces of their own. The other side is the same kernel, initramfs, image and disk,
driven by a short script over a bare HTTP server: what nobody can be faster than. Both sides take turns in one run. An
install is counted from the moment it is asked for: there by the power button, here by a commit of what a person wants.
`installed_cpu` is what the machines computed for it.

    .venv/bin/python bench/install.py [--machines 1 3] [--rounds N]

The images are made below `build/` if they are missing.
"""

import argparse
import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse

from rackwright.domain.architectures import Architecture
from rackwright.lab.dhcp import serving_dhcp
from rackwright.lab.hardware import Hardware
from rackwright.lab.network import BRIDGE, SERVER, add_tap, make_bridge
from rackwright.lab.rack import Rack, kernel_arguments, running_rack
from rackwright.lab.trial_images import cached_images
from rackwright.lab.virtual import VirtualMachine
from rackwright.provision.images.cpio import Cpio
from rackwright.provision.images.packages import say_to_stderr
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.router_advertisement import advertising
from rackwright.server.listener import listening
from report import Goal, at_most, emit
from waiting import until

ROOT = Path(__file__).resolve().parents[1]
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
OS = "debian-12"
KERNEL_ARGUMENTS = kernel_arguments([Hardware(1)])
TARGET = 1.15
PATIENCE = 3600.0
"""Seconds for one trial."""
LOOK_SECONDS = 0.2
"""Between two looks at what has come about: they are in the figures, and each takes time from the machines."""
PLAIN_PORT = 8000
PLAIN = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /run /mnt /etc; /bin/busybox --install -s; mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
export PATH=/usr/sbin:/usr/bin:/sbin:/bin; for i in 1 2; do cat $(find /sys/devices -name modalias) | xargs modprobe -a -q; done 2>/dev/null; ip link set eth0 up
udhcpc -i eth0 -n -q -t 20 -T 1 -A 1 -s /lib/rackwright/udhcpc; M=$(cat /sys/class/net/eth0/address); S=http://SERVER; wget -q -O - "$S/said/$M/discovered"
printf 'label: dos\\nstart=2048, type=83, bootable\\n' | sfdisk -q /dev/vda; while [ ! -b /dev/vda1 ]; do sleep 0.2; done
mkfs.ext4 -q -F -L root -O ^64bit,^metadata_csum -E lazy_itable_init=1,lazy_journal_init=1 /dev/vda1; mount -o noatime /dev/vda1 /mnt
wget -q -O - $S/root.tar.zst | zstd -q -dc | tar -x -C /mnt -f -; mkdir -p /mnt/boot/extlinux; K=$(basename /mnt/boot/vmlinuz-*); I=$(basename /mnt/boot/initrd.img-*)
printf 'default l\\nprompt 0\\nlabel l\\nkernel /boot/%s\\ninitrd /boot/%s\\nappend root=LABEL=root rw ARGUMENTS\\n' $K $I >/mnt/boot/extlinux/extlinux.conf; extlinux --install /mnt/boot/extlinux; dd if=/lib/rackwright/mbr.bin of=/dev/vda bs=440 count=1 conv=notrunc
printf '[Unit]\\nAfter=network.target ssh.service\\n[Service]\\nType=oneshot\\nExecStart=/bin/sh -c "until curl -sf %s/said/%s/installed; do sleep 1; done"\\n' $S $M >/mnt/etc/systemd/system/said.service
mkdir -p /mnt/etc/systemd/system/multi-user.target.wants; ln -s ../said.service /mnt/etc/systemd/system/multi-user.target.wants/; echo plain >/mnt/etc/hostname; : >/mnt/etc/machine-id; umount /mnt; sync; wget -q -O - "$S/said/$M/unpacked"; reboot -f
"""  # noqa: E501  # ten lines, as promised


def _tell(text: str) -> None:
    """Progress, for whoever waits. The figures go to standard output."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


class Effort:
    """What machines computed, in CPU seconds of their QEMU: it does not grow when this computer is busy with others."""

    def __init__(self, machines: Sequence[VirtualMachine]) -> None:
        self._machines = machines
        self._seconds: dict[int, float] = {}

    def seconds(self) -> float:
        """By all of them, up to now."""
        for pid in [machine.pid for machine in self._machines if machine.pid is not None]:
            with suppress(OSError):  # it may just have ended
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return sum(self._seconds.values())

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Looks often enough: a reset is a new process."""

        async def look() -> None:
            while True:
                self.seconds()
                await asyncio.sleep(0.2)

        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()


# --- with the product


async def _ours(shelf: Shelf, folder: Path, machines: int) -> dict[str, float]:
    hardware = [Hardware(number) for number in range(1, machines + 1)]
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "images").symlink_to(shelf.folder)
    async with AsyncExitStack() as stack:
        rack = await stack.enter_async_context(running_rack(home, folder, hardware))
        effort = Effort([one.machine for one in rack.machines])
        await stack.enter_async_context(effort.watched())
        await rack.api.post("/deployments", {"name": "bench"})
        await _serves_dhcp(rack)
        began = time.monotonic()
        for one in rack.machines:
            await one.machine.on()
        names = await _accepted(rack, machines)
        await _active(rack, names, "crowbar-managed-node")
        discovered = time.monotonic() - began
        _tell(f"ours: discovered after {discovered:.1f} s")
        for name in names:
            body = {"node": name, "role": "crowbar-installed-node", "deployment": "bench"}
            await rack.api.post("/node_roles", body)
        plan = await rack.api.post("/deployments/bench/plan")
        asked, before = time.monotonic(), effort.seconds()
        await rack.api.post("/deployments/bench/commit", {"digest": plan["digest"]})
        await _active(rack, names, "crowbar-installed-node")
        installed, computed = time.monotonic() - asked, effort.seconds() - before
        for line in await _stages(rack):
            _tell(f"ours: {line}")
        return {"discovered": discovered, "installed": installed, "installed_cpu": computed}


async def _stages(rack: Rack) -> list[str]:
    """Where the seconds of an install went, for whoever wants fewer of them."""
    async with rack.store.read() as session:
        rows = await session.rows(
            "SELECT node_id, kind, data, extract(epoch FROM at - min(at) OVER ()) AS seconds FROM events"
            " WHERE kind LIKE 'install.%' ORDER BY at, id"
        )
    return [f"{row.seconds:6.1f} s  node {row.node_id}: {row.kind} {row.data.get('stage', '')}" for row in rows]


async def _serves_dhcp(rack: Rack) -> None:
    """Wait until a machine that is switched on finds DHCP, as it does on the other side."""

    async def is_active() -> bool:
        return all(one["state"] == "active" for one in await rack.api.pages("/node_roles", deployment="system"))

    await until(is_active, lambda: "the server serves DHCP and DNS", PATIENCE, every=LOOK_SECONDS)


async def _accepted(rack: Rack, machines: int) -> list[str]:
    names: set[str] = set()

    async def all_let_in() -> bool:
        for node in await rack.api.pages("/nodes", available=False):
            await rack.api.post(f"/nodes/{node['name']}/accept")
            names.add(node["name"])
        return len(names) >= machines

    def awaited() -> str:
        return f"{machines} machines came; let in are {sorted(names)}"

    await until(all_let_in, awaited, PATIENCE, every=LOOK_SECONDS)
    return sorted(names)


async def _active(rack: Rack, names: Sequence[str], role: str) -> None:
    states: dict[str, str] = {}

    async def all_active() -> bool:
        found = await rack.api.pages("/node_roles", role=role)
        states.update({one["node"]: one["state"] for one in found})
        if any(states.get(name) == "error" for name in names):
            raise SystemExit(f"{role} failed: {found}")
        return all(states.get(name) == "active" for name in names)

    await until(all_active, lambda: f"{role} is ACTIVE everywhere; it is {states}", PATIENCE, every=LOOK_SECONDS)


# --- without it


class Plain:
    """A bare HTTP server: a script, files, and a note of who said what when."""

    def __init__(self, shelf: Shelf, root: Path) -> None:
        self.began = time.monotonic()
        self.said: dict[tuple[str, str], float] = {}
        self.changed = asyncio.Event()
        self.app = FastAPI(openapi_url=None)
        files = {name: shelf.file(Architecture.AMD64.sledgehammer, name).path for name in ("kernel", "initrd")}
        files["root.tar.zst"] = root
        address = f"{SERVER}:{PLAIN_PORT}"

        @self.app.get("/boot/{mac}")
        async def boot(mac: str) -> Response:
            if (mac, "unpacked") in self.said:
                return Response("#!ipxe\nexit\n")
            kernel = f"kernel http://{address}/kernel initrd=initrd initrd=plain rdinit=/plain {KERNEL_ARGUMENTS}"
            lines = ["#!ipxe", kernel, f"initrd --name initrd http://{address}/initrd"]
            return Response("\n".join([*lines, f"initrd --name plain http://{address}/plain", "boot", ""]))

        @self.app.get("/plain")
        async def plain() -> Response:
            return Response(_archive(PLAIN.replace("SERVER", address).replace("ARGUMENTS", KERNEL_ARGUMENTS).encode()))

        @self.app.get("/said/{mac}/{what}")
        async def said(mac: str, what: str) -> None:
            self.said.setdefault((mac, what), time.monotonic())
            _tell(f"plain: {mac} {what} after {time.monotonic() - self.began:.1f} s")
            self.changed.set()

        @self.app.get("/{file}")
        async def send(file: str) -> Response:
            return FileResponse(files[file]) if file in files else Response(status_code=404)

    async def until(self, what: str, macs: Sequence[str]) -> float:
        while not all((mac, what) in self.said for mac in macs):
            self.changed.clear()
            await self.changed.wait()
        return max(self.said[mac, what] for mac in macs)


def _archive(script: bytes) -> bytes:
    out = io.BytesIO()
    archive = Cpio(out)
    archive.file("plain", script, 0o755)
    archive.close()
    return out.getvalue()


def _write_root(shelf: Shelf, folder: Path) -> Path:
    """Write the root file system into one file, as such a server would have it. On the shelf it lies in chunks."""
    folder.mkdir(parents=True)
    root = folder / "root.tar.zst"
    with root.open("wb") as whole:
        whole.writelines(shelf.read(shelf.file(OS, "root.tar.zst")))
    return root


@asynccontextmanager
async def _plain_machines(folder: Path, machines: int) -> AsyncIterator[list[VirtualMachine]]:
    await make_bridge()
    made = []
    for number in range(1, machines + 1):
        await add_tap(f"tap{number}")
        made.append(VirtualMachine(Hardware(number), folder / f"m{number}", [f"tap{number}"]))
    try:
        yield made
    finally:
        for one in made:
            await one.off()


async def _plain(shelf: Shelf, folder: Path, machines: int) -> dict[str, float]:
    plain = Plain(shelf, await asyncio.to_thread(_write_root, shelf, folder))
    script = f"http://{SERVER}:{PLAIN_PORT}/boot/${{net0/mac}}"
    async with (
        _plain_machines(folder, machines) as made,
        advertising(BRIDGE),
        serving_dhcp(BRIDGE, SERVER, script),
        listening(plain.app, SERVER, PLAIN_PORT),
    ):
        effort = Effort(made)
        macs = [one.hardware.mac for one in made]
        plain.began = time.monotonic()
        for one in made:
            await one.on()
        discovered = await plain.until("discovered", macs) - plain.began
        installed = await plain.until("installed", macs) - plain.began
        return {"discovered": discovered, "installed": installed, "installed_cpu": effort.seconds()}


# --- both


def _inside(side: str, shelf: Shelf, folder: Path, machines: int) -> dict[str, float]:
    """One trial, in namespaces of its own."""
    told = json.dumps({"side": side, "home": str(shelf.folder.parent), "folder": str(folder), "machines": machines})
    done = subprocess.run(
        [*NAMESPACES, sys.executable, __file__, "--inside", told], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{side} with {machines} machines did not come to its end")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _trial(told: str) -> None:
    wanted = json.loads(told)
    side = {"ours": _ours, "plain": _plain}[wanted["side"]]
    folder = Path(wanted["folder"])

    async def play() -> dict[str, float]:
        async with asyncio.timeout(PATIENCE):
            return await side(Shelf(Path(wanted["home"])), folder, wanted["machines"])

    try:
        print(json.dumps(asyncio.run(play())))
    except TimeoutError:
        for console in sorted(folder.glob("*/console.log")):
            _tell(f"the last words of {console.parent.name}: {console.read_text(errors='replace')[-1000:]}")
        raise SystemExit(f"not installed within {PATIENCE:g} s") from None


def _round(side: str, shelf: Shelf, folder: Path, machines: int) -> dict[str, float]:
    _tell(f"{side}: {machines} machines are switched on")
    seconds = _inside(side, shelf, folder, machines)
    _tell(f"{side}: {', '.join(f'{what} in {value:.1f} s' for what, value in seconds.items())}")
    shutil.rmtree(folder)  # disks
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--rounds", type=int, default=1, help="of which the medians count")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        _trial(given.inside)
        return
    if os.geteuid() != 0:
        raise SystemExit("namespaces and network devices need root")
    shelf = cached_images(ROOT / "build" / "lab", OS, say_to_stderr)
    figures: dict[str, Any] = {"load": os.getloadavg()[0]}
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="rackwright-bench-") as folder:
        for machines in given.machines:
            found: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
            for _ in range(given.rounds):
                for side, rounds in found.items():
                    rounds.append(_round(side, shelf, Path(folder) / side, machines))
            for what in ("discovered", "installed", "installed_cpu"):
                seconds = {side: median(one[what] for one in rounds) for side, rounds in found.items()}
                figures |= {f"{side}_{what}_{machines}": round(value, 1) for side, value in seconds.items()}
                ratio = seconds["ours"] / seconds["plain"]
                goals.append(at_most(f"{what}, {machines} machines: ours / plain", ratio, TARGET))
    emit("install", figures, goals)


if __name__ == "__main__":
    main()
