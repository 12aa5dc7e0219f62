"""Machines with IPv6 alone: what they hear on their link, and the server that they reach."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from ipaddress import IPv6Network
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.machines.boot_provider import run_json
from tests.support.mesh.netns import network
from tests.support.servers.public_server import front
from tests.support.waiting import PATIENCE, until

from rackwright.lab.namespaces import Network as Wires
from rackwright.provision.served_subnets import write_subnets

ROOT = Path(__file__).parents[3]
CLIENT = Path(__file__).parents[2] / "support" / "machines" / "link_client.py"
CONTENT = bytes(range(256)) * 5
MANAGED_AND_OTHER = 0xC0


@pytest.fixture
def wires() -> Any:
    with network(["admin", "client"]) as made:
        yield made


@contextlib.asynccontextmanager
async def serving(wires: Wires, folder: Path) -> AsyncIterator[Path]:
    """Serve the link as fd77::1; gives the file that says which subnets are served, at first none."""
    files = folder / "files"
    files.mkdir()
    (files / "ipxe.efi").write_bytes(CONTENT)
    await run(wires, "admin", "ip address add fd77::1/64 dev eth0 nodad")
    subnets = folder / "subnets.json"
    words = ["-m", "tests.support.machines.link_server", "eth0", str(subnets), str(files)]
    process = await asyncio.create_subprocess_exec(
        *wires.command("admin", [sys.executable, *words]),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield subnets
    finally:
        process.stdin.close()
        await process.wait()


async def run(wires: Wires, server: str, command: str) -> None:
    await run_json(wires.command(server, ["sh", "-c", f"{command} && echo 0"]))


async def ask(wires: Wires, *words: str) -> bytes:
    return bytes.fromhex(await run_json(wires.command("client", [sys.executable, str(CLIENT), "eth0", *words])))


async def addresses(wires: Wires, server: str, scope: str) -> list[str]:
    command = ["ip", "-json", "-6", "address", "show", "dev", "eth0", "scope", scope]
    links = await run_json(wires.command(server, command))
    entries = [entry for link in links for entry in link.get("addr_info", ())]
    return [entry["local"] for entry in entries if "local" in entry and not entry.get("tentative")]


async def test_machines_are_sent_to_dhcp6_only_where_it_is_served(wires: Wires, tmp_path: Path) -> None:
    async with serving(wires, tmp_path) as subnets:
        silent = await ask(wires, "router", str(PATIENCE))
        assert (silent[5], len(silent)) == (0, 16), "it says nothing"
        write_subnets(subnets, [IPv6Network("fd78::/64")])
        elsewhere = await ask(wires, "router", str(PATIENCE))
        assert (elsewhere[5], len(elsewhere)) == (0, 16), "this host is in no subnet that is served"
        write_subnets(subnets, [IPv6Network("fd77::/64"), IPv6Network("fd78::/64")])
        told = await ask(wires, "router", str(PATIENCE))
        assert (told[5], told[6:8], len(told)) == (MANAGED_AND_OTHER, b"\0\0", 16 + 32)


async def test_machines_are_answered_on_an_interface_that_was_made_again(wires: Wires, tmp_path: Path) -> None:
    """As bridges and VLANs are, when somebody changes them. The kernel tells no socket that its interface is gone."""
    async with serving(wires, tmp_path) as subnets:
        write_subnets(subnets, [IPv6Network("fd77::/64")])
        for _ in range(2):
            await asyncio.to_thread(wires.make_card_again, "admin")
            await run(wires, "admin", "ip address add fd77::1/64 dev eth0 nodad")
            told = await ask(wires, "router", str(PATIENCE))
            assert told[5] == MANAGED_AND_OTHER


async def test_a_kernel_takes_the_subnet_for_its_link_and_makes_no_address_of_it(wires: Wires, tmp_path: Path) -> None:
    async with serving(wires, tmp_path) as subnets:
        write_subnets(subnets, [IPv6Network("fd77::/64")])
        # As a machine that is switched on: it asks for routers by itself.
        await run(wires, "client", "ip link set eth0 down && ip link set eth0 up")

        async def routes() -> list[str]:
            return [route["dst"] for route in await run_json(wires.command("client", ["ip", "-json", "-6", "route"]))]

        async def is_on_link() -> bool:
            return "fd77::/64" in await routes()

        await until(is_on_link, "the subnet is on the link")
        assert "default" not in await routes()
        assert await addresses(wires, "client", "global") == []


async def test_tftp_answers_a_machine_by_either_of_its_addresses(wires: Wires, tmp_path: Path) -> None:
    async with serving(wires, tmp_path):
        await run(wires, "client", "ip address add fd77::20/64 dev eth0 nodad")

        async def link_local() -> list[str]:
            both = [await addresses(wires, server, "link") for server in ("admin", "client")]
            return both[0] if all(both) else []

        [server] = await until(link_local, "both have an address of the link")
        assert await ask(wires, "fd77::1", "ipxe.efi") == CONTENT
        assert await ask(wires, server, "ipxe.efi") == CONTENT


def test_a_server_has_an_address_of_each_family_for_machines(tmp_path: Path, migrated_url: str) -> None:
    with front(tmp_path, migrated_url, more=["--provision-address", "::1"]) as met:
        port = httpx.URL(met.machines).port
        for host in (f"127.0.0.1:{port}", f"[::1]:{port}"):
            script = httpx.get(f"http://{host}/boot/52-54-00-00-00-01", trust_env=False, timeout=PATIENCE)
            assert f"rackwright.server=http://{host} " in script.text
            assert f"\ninitrd --name initrd http://{host}/files/sledgehammer/initrd " in script.text
