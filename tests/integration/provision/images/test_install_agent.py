"""How the installer tells the server what it does: its own lines, against a running server."""

import asyncio
import hashlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import pytest
from tests.support.servers.install_site import HandMachine, Site, running_site
from tests.support.waiting import PATIENCE, until

from rackwright.domain.machines.install import Stage
from rackwright.server.listener import listening
from rackwright.store.runs.run_logs import read_log

AGENT = files("rackwright.provision.images") / "agent"

INSTALLER = (
    """
mount -t tmpfs tmpfs /run
mkdir /run/bin
busybox --install -s /run/bin
PATH=/run/bin:/usr/bin
"""
    + (AGENT / "common").read_text()
    + (AGENT / "install").read_text()
    + r"""
server=$1 secret=$2 folder=$3
root=$folder/root
say() { :; }
sleep() { busybox sleep 0.05; }
unmount() { rm -r $root; }
format() { mkdir $root; }
# The connection breaks in the middle, the first time.
wget() {
    if [ -e /run/broke ]; then
        cat $folder/image
    else
        head -c $(($(told image/size) * 6 / 10)) $folder/image
        until [ -e $folder/break ]; do sleep; done
        : >/run/broke
        return 1
    fi
}
cp $folder/config /run/config
format
progress partition 5
progress download 15
download
progress configure 80
"""
)
"""In a namespace of its own, with busybox before everything else, as in the image; what asks the server is a wget that
`timeout` starts, so that only the image comes from the function."""


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path / "home", started_url) as running:
        yield running


def _make_image(folder: Path) -> None:
    (folder / "content").write_bytes(bytes(range(256)) * 8 + hashlib.shake_256(b"image").digest(300_000))
    subprocess.run(["tar", "-C", folder, "-cf", folder / "tar", "content"], check=True)
    subprocess.run(["zstd", "-q", folder / "tar", "-o", folder / "image"], check=True)
    image = (folder / "image").read_bytes()
    values = {"path": "/files/image", "size": len(image), "sha256": hashlib.sha256(image).hexdigest()}
    (folder / "config").write_text("".join(f"/image/{name}\tstring\t{value}\n" for name, value in values.items()))


async def _log(site: Site, machine: HandMachine) -> str:
    [(run_id,)] = await site.rack.rows("SELECT run_id FROM install_attempts")
    assert isinstance(run_id, int)
    async with site.server.store.read() as session:
        return "".join(text for _, text in await read_log(session, run_id))


async def test_the_installer_tells_how_much_of_the_image_has_come(site: Site, tmp_path: Path) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.REBOOTING)
    secret = (await machine.fetch_secret("127.0.0.1")).text
    _make_image(tmp_path)
    namespace = ("unshare", "--mount", "--propagation", "private", "busybox", "sh", "-s")
    async with listening(site.machine_app) as address:
        installer = await asyncio.create_subprocess_exec(
            *(*namespace, address, secret, str(tmp_path)),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        ending = asyncio.create_task(installer.communicate(INSTALLER.encode()))
        try:
            async with asyncio.timeout(PATIENCE):
                await until(lambda: _said(site, machine, " of 300 kB"), "the installer tells bytes")
                (tmp_path / "break").touch()
                _, error = await ending
        finally:
            if installer.returncode is None:
                os.killpg(installer.pid, signal.SIGKILL)
                await ending
    assert installer.returncode == 0, error.decode()
    assert (tmp_path / "root" / "content").read_bytes() == (tmp_path / "content").read_bytes()
    lines = (await _log(site, machine)).splitlines()
    told = lines[lines.index("partitioning the disk") + 2 :]
    assert told[0] == "writing the image"
    assert [line for line in told if "begins anew, it was cut off after" in line]
    assert [line for line in told if line.startswith("writing the image: 100 % (300 kB of 300 kB")]
    assert told[-1] == "configuring the system"


async def _said(site: Site, machine: HandMachine, text: str) -> bool:
    return text in await _log(site, machine)
