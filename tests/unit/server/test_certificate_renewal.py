"""Renewal of the server's certificate is supervised: where it breaks, the server says so and starts it again."""

import asyncio
import ssl
from pathlib import Path

import pytest

from rackwright.annealer.supervision import Supervisor
from rackwright.server import serve
from rackwright.server.settings import Options


async def test_renewal_that_breaks_is_shown_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = 0
    running_again = asyncio.Event()
    ended = asyncio.Event()

    async def renew(*_: object) -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise KeyError("subject")
        running_again.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(serve, "keep_certificate_fresh", renew)
    supervisor = Supervisor(first_pause=0, recovered_after=3600)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with serve.renewing_certificate(context, Options(tmp_path), supervisor):
        await running_again.wait()
        assert [(part.name, part.error) for part in supervisor.broken] == [("certificate", "KeyError: 'subject'")]
    await ended.wait()


async def test_server_without_tls_renews_nothing(tmp_path: Path) -> None:
    supervisor = Supervisor()
    async with serve.renewing_certificate(None, Options(tmp_path), supervisor):
        await asyncio.sleep(0)
        assert not supervisor.parts
