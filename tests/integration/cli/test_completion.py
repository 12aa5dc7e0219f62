"""Names that a shell completes, from a server whose certificate only the profile knows."""

import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI
from tests.support.waiting import PATIENCE

from rackwright.cli import shared
from rackwright.cli.shared import complete_names
from rackwright.server.listener import listening
from rackwright.server.settings import Options
from rackwright.server.tls import choose_certificate


async def test_completion_trusts_the_certificates_of_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = choose_certificate(Options(tmp_path, tls=True), "rack.example")
    assert certificate is not None
    app = FastAPI()
    app.get("/api/v2/nodes")(lambda: {"items": [{"name": "n1.rack.example"}], "next": None})
    monkeypatch.setenv("RACKWRIGHT_TOKEN", "anything")
    monkeypatch.setattr(shared, "COMPLETING_SECONDS", PATIENCE)
    async with listening(app, tls=certificate.context()) as address:
        monkeypatch.setenv("RACKWRIGHT_URL", address.replace("127.0.0.1", "localhost"))
        monkeypatch.setenv("RACKWRIGHT_CA", str(certificate.certificate))
        assert await asyncio.to_thread(complete_names("/nodes"), "n1") == ["n1.rack.example"]
        monkeypatch.setenv("RACKWRIGHT_CA", str(tmp_path / "none"))
        assert await asyncio.to_thread(complete_names("/nodes"), "n1") == []
