"""How the installer fetches an image and tells the server what it does: its own lines, against a running server, over
connections that break."""

import asyncio
import io
import os
import signal
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import shake_256
from importlib.resources import files
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.machines.signed_registration import public_key
from tests.support.servers.install_site import HandMachine, Site, running_site
from tests.support.waiting import PATIENCE, until

from rackwright.domain.machines.install import Stage
from rackwright.provision.images import root_archive
from rackwright.provision.images.manifest import ImageFile
from rackwright.provision.images.root_archive import RootArchive
from rackwright.provision.images.shelf import ROOT_FILE
from rackwright.provision.images.tar_reader import read_tar
from rackwright.server.listener import listening
from rackwright.store.runs.run_logs import read_log

AGENT = files("rackwright.provision.images") / "agent"
NAME = "trial-1"
FILES = {f"usr/share/file-{number}": shake_256(bytes([number])).digest(150_000) for number in range(8)}

INSTALLER = (
    """
mount -t tmpfs tmpfs /run
mkdir /run/bin
busybox --install -s /run/bin
PATH=/run/bin:/usr/bin
"""
    + (AGENT / "common").read_text()
    + "".join(line for line in (AGENT / "install").read_text().splitlines(True) if not line.startswith("for part"))
    + (AGENT / "download").read_text()
    + r"""
server=$1 secret=$2 folder=$3 key=$4 cuts=0
root=$folder/root
say() { echo "$*" >&2; }
sleep() { busybox sleep 0.05; }
give_up() { exit 9; }
cp $folder/config /run/config
mkdir $root
progress partition 5
progress download 15
download
progress configure 80
"""
)
"""In a namespace of its own, with busybox before everything else, as in the image."""


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path / "home", started_url) as running:
        yield running


def _put_image(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ImageFile:
    """Put an image of several chunks on the server's shelf, and write the config that names them."""
    monkeypatch.setattr(root_archive, "MOST_PIECE", 300_000)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    out.seek(0)
    chunked: dict[str, ImageFile] = {}
    shelf = site.server.shelf
    with shelf.making(NAME, {}, chunked):
        archive = RootArchive(shelf.chunks)
        archive.write(read_tar(out))
        chunked[ROOT_FILE] = archive.close()
    root = shelf.file(NAME, ROOT_FILE)
    lines = [f"/image/size\tnumber\t{root.size}"]
    for number, chunk in enumerate(root.chunks):
        lines += [f"/image/chunks/{number}/sha256\tstring\t{chunk.sha256}"]
        lines += [f"/image/chunks/{number}/size\tnumber\t{chunk.size}"]
    (folder / "config").write_text("".join(f"{line}\n" for line in lines))
    return root


@dataclass
class Cable:
    """The network between the installer and the server."""

    address: str
    """The server's."""
    cut: Callable[[str, int], int | None] = lambda _path, _time: None
    """After how many bytes of the answer the connection breaks: for a path, and the time that it is asked for."""
    holds: dict[str, asyncio.Event] = field(default_factory=dict)
    """Paths that are answered only when something has happened."""
    asked: list[str] = field(default_factory=list)
    """The paths that were asked for."""
    sent: dict[str, bytes] = field(default_factory=dict)
    """What is sent in place of the server's answer, by path."""

    @asynccontextmanager
    async def plugged(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._relay, "127.0.0.1")
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.address.removeprefix("http://").split(":")
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.asked.append(path)
            if path in self.holds:
                await self.holds[path].wait()
            if path in self.sent:
                writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + self.sent[path])
                return
            left = self.cut(path, self.asked.count(path))
            if left == 0:
                return
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            up_writer.write(head.replace(b"Connection: keep-alive", b"Connection: close"))
            sending = asyncio.create_task(_copy(reader, up_writer, None))
            await _copy(up_reader, writer, left)
            sending.cancel()
            up_writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None) -> None:
    while (most is None or most > 0) and (block := await reader.read(65536 if most is None else min(most, 65536))):
        writer.write(block)
        await writer.drain()
        most = None if most is None else most - len(block)


@dataclass
class Ending:
    status: int
    said: str
    log: list[str]


async def _install(site: Site, machine: HandMachine, cable: Cable, folder: Path) -> Ending:
    secret = (await machine.fetch_secret("127.0.0.1")).text
    namespace = ("unshare", "--mount", "--propagation", "private", "busybox", "sh", "-s")
    async with cable.plugged() as address:
        installer = await asyncio.create_subprocess_exec(
            *(*namespace, address, secret, str(folder), public_key(Ed25519PrivateKey.generate())),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        ending = asyncio.create_task(installer.communicate(INSTALLER.encode()))
        try:
            async with asyncio.timeout(PATIENCE):
                _, error = await asyncio.shield(ending)
        finally:
            if installer.returncode is None:
                os.killpg(installer.pid, signal.SIGKILL)
                await ending
    assert installer.returncode is not None
    return Ending(installer.returncode, error.decode(errors="replace"), (await _log(site)).splitlines())


async def _log(site: Site) -> str:
    [(run_id,)] = await site.rack.rows("SELECT run_id FROM install_attempts")
    assert isinstance(run_id, int)
    async with site.server.store.read() as session:
        return "".join(text for _, text in await read_log(session, run_id))


def _arrived(folder: Path) -> dict[str, bytes]:
    root = folder / "root"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@asynccontextmanager
async def _ready(site: Site) -> AsyncIterator[tuple[HandMachine, Cable]]:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.REBOOTING)
    async with listening(site.machine_app) as address:
        yield machine, Cable(address)


async def test_after_a_cut_the_installer_goes_on_at_the_chunk(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _put_image(site, tmp_path, monkeypatch)
    paths = [f"/chunks/{chunk.sha256}" for chunk in root.chunks]
    assert len(paths) >= 4
    async with _ready(site) as (machine, cable):
        # In the middle of the third chunk, the line breaks twice; before the last, the server is away for a while.
        cable.cut = lambda path, time: (
            100_000 if path == paths[2] and time < 3 else 0 if path == paths[-1] and time < 3 else None
        )
        ending = await _install(site, machine, cable, tmp_path)
    assert ending.status == 0, ending.said
    assert _arrived(tmp_path) == FILES
    fetched = [path for path in cable.asked if path.startswith("/chunks/")]
    assert fetched == [paths[0], paths[1], *[paths[2]] * 3, *paths[3:-1], *[paths[-1]] * 3]
    told = ending.log[ending.log.index("writing the image") :]
    assert [line for line in told if "goes on at" in line and "it was cut off after" in line]
    assert [line for line in told if line.startswith("writing the image: done")]
    assert told[-1] == "configuring the system"


async def test_a_connection_over_which_nothing_comes_is_ended_and_made_anew(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _put_image(site, tmp_path, monkeypatch)
    path = f"/chunks/{root.chunks[1].sha256}"
    go_on = asyncio.Event()
    async with _ready(site) as (machine, cable):
        cable.holds[path] = go_on
        installing = asyncio.create_task(_install(site, machine, cable, tmp_path))
        try:
            await until(lambda: cable.asked.count(path) > 1, "the installer asks again")
        finally:
            go_on.set()
            ending = await installing
    assert ending.status == 0, ending.said
    assert _arrived(tmp_path) == FILES
    assert "the image was cut off: nothing came for 60 seconds" in ending.said


async def test_nothing_of_a_chunk_with_another_digest_is_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _put_image(site, tmp_path, monkeypatch)
    other = shake_256(b"other").digest(root.chunks[1].size)
    async with _ready(site) as (machine, cable):
        cable.sent[f"/chunks/{root.chunks[1].sha256}"] = other
        ending = await _install(site, machine, cable, tmp_path)
    assert ending.status == 1
    assert [line for line in ending.log if "failed" in line and "chunk 1 of the image is another" in line]
    assert set(_arrived(tmp_path)) <= set(list(FILES)[:2]), "no more than what the first chunk has"
    assert f"/chunks/{root.chunks[2].sha256}" not in cable.asked


async def test_no_more_of_a_chunk_is_taken_than_was_promised(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept in memory, so whoever answers in the server's place could fill it."""
    root = _put_image(site, tmp_path, monkeypatch)
    path = f"/chunks/{root.chunks[0].sha256}"
    async with _ready(site) as (machine, cable):
        cable.sent[path] = b"x" * 50_000_000
        ending = await _install(site, machine, cable, tmp_path)
    assert ending.status == 1
    assert _arrived(tmp_path) == {}
    assert [line for line in ending.log if "failed" in line]
    assert cable.asked.count(path) == 20


async def test_an_image_that_is_gone_fails_the_install_at_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _put_image(site, tmp_path, monkeypatch)
    site.server.shelf.delete(NAME)
    async with _ready(site) as (machine, cable):
        ending = await _install(site, machine, cable, tmp_path)
    assert ending.status == 1
    assert [line for line in ending.log if "the image is not to be had" in line and "404" in line]
    assert cable.asked.count(f"/chunks/{root.chunks[0].sha256}") == 1


async def test_a_disk_that_is_full_fails_the_install_with_what_tar_said(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_image(site, tmp_path, monkeypatch)
    (tmp_path / "root").touch()  # no folder, as a stand-in for a disk that takes nothing
    async with _ready(site) as (machine, cable):
        ending = await _install(site, machine, cable, tmp_path)
    assert ending.status == 1
    assert [line for line in ending.log if "the image does not unpack" in line]


async def test_the_bytes_are_told_while_they_come(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _put_image(site, tmp_path, monkeypatch)
    last = f"/chunks/{root.chunks[-1].sha256}"
    go_on = asyncio.Event()
    async with _ready(site) as (machine, cable):
        cable.holds[last] = go_on
        installing = asyncio.create_task(_install(site, machine, cable, tmp_path))
        try:
            await until(lambda: _said(site, " of 1 MB"), "the installer tells bytes")
        finally:
            go_on.set()
            ending = await installing
        assert ending.status == 0


async def _said(site: Site, text: str) -> bool:
    return text in await _log(site)
