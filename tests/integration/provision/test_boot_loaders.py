"""What boot loaders ask, and what they read of an answer, on the wire."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.servers.install_site import Site, running_site

from rackwright.api.http.boot_loaders import BootLoaderMiddleware
from rackwright.server.listener import listening

CONTENT = b"shim" * 5000
MAC = "52:54:00:00:00:01"
GRUB = "Host: {host}\r\nUser-Agent: GRUB 2.12-9\r\n\r\n"


@pytest.fixture
async def port(started_url: str, tmp_path: Path) -> AsyncIterator[int]:
    """The port of a machine interface that has an image."""
    async with running_site(tmp_path, started_url) as site:
        _fill_shelf(site)
        site.machine_app.add_middleware(BootLoaderMiddleware)
        async with listening(site.machine_app) as address:
            yield int(address.rpartition(":")[2])


def _fill_shelf(site: Site) -> None:
    with site.server.shelf.making("sledgehammer", {}) as folder:
        (folder / "shimx64.efi").write_bytes(CONTENT)


async def _ask(port: int, line: str) -> tuple[list[bytes], bytes]:
    """Ask as GRUB does, which leaves the port out; return the lines of the head, and the body of its whole length."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{line} HTTP/1.1\r\n{GRUB.format(host='127.0.0.1')}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        [length] = [
            int(line.removeprefix(b"Content-Length: ")) for line in head if line.startswith(b"Content-Length: ")
        ]
        return head, await reader.readexactly(0 if line.startswith("HEAD") else length)
    finally:
        writer.close()


async def test_the_length_of_a_script_is_told_in_the_case_that_grub_knows(port: int) -> None:
    head, script = await _ask(port, "GET /boot/52:54:00:00:00:01/grub.cfg")
    assert head[0] == b"HTTP/1.1 200 OK"
    assert b"# bootenv sledgehammer" in script
    assert f"(http,127.0.0.1:{port})/files/sledgehammer/kernel".encode() in script, "with the port that GRUB left out"


async def test_grub_that_came_by_http_is_told_to_ask_the_same_server(port: int) -> None:
    _, script = await _ask(port, "GET /grub/grub.cfg")
    asks = f'source "(http,127.0.0.1:{port})/boot/$net_default_mac/grub.cfg?cpu=$grub_cpu"'
    assert script.startswith(asks.encode())


async def test_grub_is_given_the_kernel_of_the_processor_that_it_runs_on(port: int) -> None:
    for cpu, image in (("?cpu=arm64", "sledgehammer-arm64"), ("?cpu=x86_64", "sledgehammer"), ("", "sledgehammer")):
        _, script = await _ask(port, f"GET /boot/{MAC}/grub.cfg{cpu}")
        assert f"(http,127.0.0.1:{port})/files/{image}/kernel".encode() in script, cpu


@pytest.mark.parametrize("cpu", ["riscv64", "i386", "", "arm64%27;%20exit"])
async def test_grub_on_a_processor_that_is_not_known_is_refused(port: int, cpu: str) -> None:
    head, body = await _ask(port, f"GET /boot/{MAC}/grub.cfg?cpu={cpu}")
    assert head[0].split()[1] == b"422"
    assert b"it is for x86_64, arm64" in body


async def test_who_asks_for_what_is_not_there_is_told_of(started_url: str, tmp_path: Path) -> None:
    missing: list[str] = []
    async with running_site(tmp_path, started_url) as site:
        _fill_shelf(site)
        site.machine_app.add_middleware(BootLoaderMiddleware, missing.append)
        async with listening(site.machine_app) as address:
            port = int(address.rpartition(":")[2])
            assert (await _ask(port, "GET /files/sledgehammer/shimx64.efi"))[0][0].split()[1] == b"200"
            for method in ("HEAD", "GET"):
                head, _ = await _ask(port, f"{method} /files/sledgehammer-arm64/shimaa64.efi")
                assert head[0].split()[1] == b"404"
    assert missing == ["shimaa64.efi"] * 2


async def test_firmware_asks_how_long_a_loader_is_before_it_fetches_it(port: int) -> None:
    head, body = await _ask(port, "HEAD /files/sledgehammer/shimx64.efi")
    assert (head[0], body) == (b"HTTP/1.1 200 OK", b"")
    assert f"Content-Length: {len(CONTENT)}".encode() in head
    assert (await _ask(port, "GET /files/sledgehammer/shimx64.efi"))[1] == CONTENT


async def test_shim_asks_with_two_slashes_for_the_loader_beside_it(port: int) -> None:
    assert (await _ask(port, "GET /files/sledgehammer//shimx64.efi"))[1] == CONTENT


@pytest.mark.parametrize("path", ["/grub/grub.cfg", f"/boot/{MAC}/grub.cfg", f"/boot/{MAC}/secret.cpio"])
async def test_grub_that_came_by_http_asks_for_the_head_of_each_file_first(port: int, path: str) -> None:
    head, _ = await _ask(port, f"HEAD {path}")
    assert head[0] == b"HTTP/1.1 200 OK"
