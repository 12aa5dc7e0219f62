"""How the shell agents register: sledgehammer's and the installed system's own lines, against a running server."""

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import pytest
from tests.support.servers.install_site import Site, running_site
from tests.support.waiting import PATIENCE

from rackwright.server.listener import listening
from rackwright.store.machines.keys import key_fingerprint
from rackwright.store.machines.registration import find_node_by_token

IMAGES = files("rackwright.provision.images")
MAC = "52:54:00:00:00:01"

SLEDGEHAMMER = (
    """
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /root
mkdir /run/bin /root/.ssh
busybox --install -s /run/bin
PATH=/run/bin:/usr/bin
"""
    + (IMAGES / "agent" / "common").read_text()
    + f"""
server=$1 bootenv=sledgehammer boot_id=boot-1
macs() {{ echo {MAC}; }}
echo 127.0.0.1 >/run/address
make_key
key=$(base64 -w 0 </run/key.public)
register '{{"serial":"S1"}}' || {{ cat /run/answer.error >&2; exit 1; }}
echo "$token"
fingerprint
"""
)
"""In a namespace of its own, with busybox before everything else, as in the image."""


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running


async def _run(script: str, *command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        out, error = await process.communicate(script.encode())
    assert process.returncode == 0, error.decode()
    return out.decode()


async def test_sledgehammer_registers_and_shows_its_key_as_the_server_does(site: Site) -> None:
    namespace = ("unshare", "--mount", "--propagation", "private", "busybox", "sh", "-s")
    async with listening(site.machine_app) as address:
        token, shown = (await _run(SLEDGEHAMMER, *namespace, address)).split()
    [(id, key, serial)] = await site.rack.rows(
        "SELECT id, key, discovery ->> 'serial' FROM nodes WHERE waiting_since IS NOT NULL"
    )
    async with site.server.store.read() as session:
        assert await find_node_by_token(session, token) == id
    assert (serial, shown) == ("S1", key_fingerprint(str(key)))


async def test_an_installed_system_registers_with_the_key_it_was_installed_with(site: Site, tmp_path: Path) -> None:
    link, settings = tmp_path / "net" / "eth0", tmp_path / "settings"
    (link / "device").mkdir(parents=True)
    (link / "address").write_text(f"{MAC}\n")
    settings.mkdir()
    await _run("", "openssl", "genpkey", "-algorithm", "ed25519", "-out", str(settings / "key.pem"))
    export = f"openssl pkey -in {settings}/key.pem -pubout -outform DER | tail -c 32 | base64 -w 0"
    public = await _run(export, "sh", "-s")
    (settings / "key.public").write_text(f"{public}\n")
    report = (IMAGES / "installed" / "report").read_text()
    report = report.replace("/etc/rackwright", str(settings)).replace("/sys/class/net", str(tmp_path / "net"))
    async with listening(site.machine_app) as address:
        (settings / "server").write_text(f"server={address}\n")
        await _run(report, "sh", "-s")
    [(bootenv, said)] = await site.rack.rows(
        "SELECT observed_bootenv, discovery FROM nodes WHERE waiting_since IS NOT NULL"
    )
    assert bootenv == "local"
    assert isinstance(said, dict)
    assert said.keys() == {"address", "kernel", "root"}
