"""`rackwright server` as a process: TLS, what it refuses to start with, and the end of its database."""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from tests.support.processes import is_alive, keeper_of, postmaster_of
from tests.support.servers.server_processes import DIES_WITH_US, RACKWRIGHT
from tests.support.sockets import accepted_socket_of
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.server.tls import choose_certificate, ensure_self_signed, keep_certificate_fresh


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(home: Path, *options: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    home.mkdir(exist_ok=True)
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*DIES_WITH_US, str(RACKWRIGHT), "server", "--home", str(home), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | variables,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def logged(home: Path) -> str:
    return (home / "server.log").read_text()


def test_https_with_a_self_made_certificate_that_can_be_trusted_by_its_file(tmp_path: Path, migrated_url: str) -> None:
    home, port = tmp_path / "home", free_port()
    with server(home, "--tls", "--manual", "--port", str(port), RACKWRIGHT_DATABASE_URL=migrated_url):
        wait_until(lambda: "Rackwright on" in logged(home), "the server is up")
        assert f"https://127.0.0.1:{port}" in logged(home)
        context = ssl.create_default_context(cafile=str(home / "tls" / "certificate.pem"))
        client = httpx.Client(base_url=f"https://localhost:{port}", verify=context, trust_env=False, timeout=PATIENCE)
        wait_until(lambda: _answers(client), "it answers")
        password = (home / "admin-password").read_text().strip()
        assert f"Log in as admin with {password}" in logged(home)
        login = client.post("/api/v2/sessions", json={"name": "admin", "password": password})
        assert "; Secure" in login.headers["set-cookie"]
        assert client.get("/api/v2/me").json()["name"] == "admin"
        with httpx.Client(trust_env=False, timeout=PATIENCE) as stranger:
            try:
                stranger.get(f"https://localhost:{port}/healthz")
                raise AssertionError("a certificate nobody vouched for was accepted")
            except httpx.ConnectError:
                pass


def _answers(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get("/healthz").status_code == 200
    return False


def test_plain_http_on_all_addresses_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with server(tmp_path / "home", "--host", "0.0.0.0") as process:
        assert process.wait(PATIENCE) == 1
    assert "in the clear on 0.0.0.0" in logged(tmp_path / "home")
    assert "Traceback" not in logged(tmp_path / "home")
    assert not (tmp_path / "home" / "postgres").exists()


def test_a_mistake_in_the_settings_file_is_one_sentence(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rackwright.toml").write_text("prot = 1\n")
    with server(home) as process:
        assert process.wait(PATIENCE) == 1
    assert "did you mean 'port'?" in logged(home)
    assert "Traceback" not in logged(home)


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with server(tmp_path / "home", "--port", str(taken.getsockname()[1])) as process:
            assert process.wait(PATIENCE) == 1
    assert "Cannot listen on 127.0.0.1" in logged(tmp_path / "home")
    assert "Traceback" not in logged(tmp_path / "home")


def test_the_server_ends_with_its_embedded_database_and_says_why(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with server(home, "--port", "0", "--tick", "1") as process:
        wait_until(lambda: "Rackwright on" in logged(home), "the server is up")
        postmaster = postmaster_of(home)
        os.kill(keeper_of(home), signal.SIGKILL)
        assert process.wait(PATIENCE) == 1
    assert "The embedded PostgreSQL in" in logged(home)
    assert "start the server again" in logged(home)
    assert "Traceback" not in logged(home)
    wait_until(lambda: not is_alive(postmaster), "the database ends with its keeper")


async def test_a_renewed_certificate_is_taken_up_without_a_restart(tmp_path: Path) -> None:
    options = Options(tmp_path, tls=True)
    certificate = choose_certificate(options, "rack.example")
    assert certificate is not None
    context = certificate.context()

    async def certificate_shown_at(address: str) -> bytes:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", int(address.rpartition(":")[2]), ssl=ssl._create_unverified_context()
        )
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return shown

    async with listening(FastAPI(), tls=context) as address:
        first = await certificate_shown_at(address)
        assert await certificate_shown_at(address) == first
        fresh = asyncio.create_task(keep_certificate_fresh(context, options, "rack.example", every=0.02))
        try:
            certificate.certificate.unlink()

            async def is_renewed() -> bool:
                return await certificate_shown_at(address) != first

            await until(is_renewed, "the new certificate is shown")
        finally:
            fresh.cancel()
        assert ensure_self_signed(tmp_path, ["rack.example"]).certificate.exists()


@pytest.mark.parametrize("tls", [False, True])
async def test_answers_do_not_wait_for_the_clients_acknowledgement(tmp_path: Path, tls: bool) -> None:
    """With Nagle's algorithm on, each answer of two parts waits until the client's delayed ACK: 40 ms."""
    certificate = choose_certificate(Options(tmp_path, tls=tls), "rack.example")
    context = None if certificate is None else certificate.context()
    async with listening(FastAPI(), tls=context) as address:
        trusting = ssl._create_unverified_context() if tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]), ssl=trusting)
        writer.write(b"GET /nothing HTTP/1.1\r\nHost: here\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        with accepted_socket_of(writer.get_extra_info("socket")) as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.transport.abort()


async def test_a_connection_that_nobody_uses_is_kept_longer_than_clients_keep_theirs() -> None:
    """Or it is closed just when a client uses it again, which then cannot know whether its request was taken."""
    kept_by_clients = httpx.Limits().keepalive_expiry
    assert kept_by_clients is not None
    async with listening(FastAPI()) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        for pause in (kept_by_clients + 1, 0):
            writer.write(b"GET /nothing HTTP/1.1\r\nHost: here\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 404 ")
            await reader.readexactly(len(b'{"detail":"Not Found"}'))
            await asyncio.sleep(pause)
        writer.close()


async def test_the_connection_of_a_machine_that_was_reset_does_not_stay() -> None:
    async with listening(FastAPI(), unacknowledged_seconds=20) as address:
        _, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        client = writer.get_extra_info("socket")

        async def accepted() -> bool:
            with contextlib.suppress(LookupError):
                accepted_socket_of(client).close()
                return True
            return False

        await until(accepted, "the connection is taken in")
        with accepted_socket_of(client) as there:
            assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        writer.close()
