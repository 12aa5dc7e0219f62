"""What is logged of requests that fail: strangers decide how many these are."""

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.exc import OperationalError

from rackwright.api.http.problems import install


async def test_requests_while_the_database_does_not_answer_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    install(app)

    @app.get("/boot/{machine}")
    async def boot(machine: str) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        for number in range(100):
            assert (await client.get(f"/boot/{number}")).status_code == 503
    [record] = [record for record in caplog.records if record.name.startswith("rackwright")]
    assert "GET /boot/0: the database does not answer:" in record.getMessage()
