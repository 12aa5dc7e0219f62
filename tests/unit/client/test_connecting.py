"""How the clients connect: which addresses and certificates they take, and how long they keep a connection."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from tests.support.waiting import PATIENCE

from rackwright.api import app
from rackwright.client import access, transport
from rackwright.client.access import Access, access_of_home
from rackwright.client.awaited import AsyncApiClient
from rackwright.client.blocking import ApiClient
from rackwright.client.errors import BadAddress, NoAnswer
from rackwright.server import first_admin, listener

NOBODY = "http://127.0.0.1:1"


def test_client_and_server_mean_the_same() -> None:
    assert access.PREFIX == app.PREFIX
    assert access.TOKEN_FILE == first_admin.TOKEN_FILE
    assert transport.KEEP_ALIVE_SECONDS < listener.KEEP_ALIVE_SECONDS


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://[::1", "is no URL of a server"),
        ("ftp://server", "begins with neither http:// nor https://"),
        ("server:8090", "begins with neither http:// nor https://"),
    ],
)
def test_what_is_no_url_of_a_server_is_refused_before_anything_is_asked(url: str, message: str) -> None:
    with pytest.raises(BadAddress, match=message):
        ApiClient(Access(url))
    with pytest.raises(BadAddress, match=message):
        AsyncApiClient(Access(url))


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadAddress, match=r"The certificates in .*nothing cannot be read"):
        ApiClient(Access("https://server", ca=str(tmp_path / "nothing")))


def test_a_server_that_is_not_there_is_named_after_the_last_try() -> None:
    with ApiClient(Access(NOBODY)) as api, pytest.raises(NoAnswer, match=f"The server at {NOBODY} does not answer"):
        api.get("/nodes")


async def test_both_clients_read_lists_and_send_the_token_of_the_home(tmp_path: Path) -> None:
    (tmp_path / "admin-token").write_text("t0ken\n")
    served = FastAPI()
    tokens = []

    @served.get("/api/v2/nodes")
    def nodes(request: Request) -> dict[str, object]:
        tokens.append(request.headers["Authorization"])
        return {"items": [{"name": "n1"}], "next": None}

    async with listener.listening(served) as address:
        home_access = access_of_home(address, tmp_path)
        async with AsyncApiClient(home_access, PATIENCE) as awaited:
            assert await awaited.pages("/nodes") == [{"name": "n1"}]
        with ApiClient(home_access, PATIENCE) as blocking:
            assert await asyncio.to_thread(blocking.pages, "/nodes") == [{"name": "n1"}]
    assert tokens == ["Bearer t0ken"] * 2


def test_the_command_line_does_not_load_the_http_library_before_it_calls() -> None:
    code = "import sys, rackwright.cli.client; sys.exit('httpx' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
