"""Bodies that strangers and tenants send to either listener: none stops the server, and none carries a sealed value.

- A body is looked at in time that grows with its size, whatever is in it; what is too deep is refused.
- Only the server seals secrets. A body with a made-up seal is refused, however deep the seal lies, however its name is
  spelled and whatever encoding it comes in; a patch reaches into no sealed value, and carries none to another place.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.servers.public_server import Front, front

REGISTER = "/api/v2/nodes/register"
LOGIN = "/api/v2/sessions"
MINUTE = 60.0
"""Seconds; the very slowest machine needs a tenth of that for a body, and a careless look at one takes hours."""
SEAL = {"$sealed": "1:AAAA", "fingerprint": "x"}
JSON = "application/json"


@pytest.fixture
def site(tmp_path: Path, started_url: str) -> Iterator[Front]:
    with front(tmp_path, started_url) as running:
        yield running


def post(listener: str, path: str, body: bytes) -> httpx.Response:
    headers = {"Content-Type": JSON}
    return httpx.post(listener + path, content=body, headers=headers, timeout=MINUTE, trust_env=False)


HOSTILE = {
    "a string nobody closes": b'"' + b'\\"' * 500_000,
    "quotes alone": b'"' * 1_000_000,
    "a quote and a backslash, again and again": b'"\\' * 500_000,
    "brackets that open": b"[" * 1_000_000,
    "brackets that open and close": b"[" + b"[]," * 333_000 + b"[]]",
    "escapes alone": b'"' + b"\\u0000" * 170_000 + b'"',
    "digits": b"[" + b"1" * 1_000_000 + b"]",
    "blanks": b" " * 1_000_000,
}


def test_no_body_of_a_stranger_keeps_either_listener_busy(site: Front) -> None:
    for listener in site.listeners:
        for path in (REGISTER, LOGIN, "/nowhere"):
            for what, body in HOSTILE.items():
                answer = post(listener, path, body)
                assert answer.status_code in (404, 405, 413, 422), f"{what} at {listener}{path}: {answer.text}"
        assert httpx.get(f"{listener}/healthz", timeout=MINUTE, trust_env=False).status_code == 200


def test_no_body_of_a_tenant_keeps_the_server_busy(site: Front) -> None:
    with site.client(token=True) as tenant:
        for what, body in HOSTILE.items():
            answer = tenant.post("/api/v2/nodes", content=body, headers={"Content-Type": JSON})
            assert answer.status_code == 422, f"{what}: {answer.text}"


MANY_FIELDS = json.dumps({f"field-{number}": 1 for number in range(50_000)}).encode()


def in_chunks(body: bytes) -> Iterator[bytes]:
    """A body that nobody says the length of."""
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


@pytest.mark.parametrize(
    "credentials", [{}, {"Authorization": "Bearer rw_made-up"}, {"Cookie": "rackwright_session=x"}]
)
def test_a_large_body_is_not_looked_at_until_it_is_known_who_sends_it(site: Front, credentials: dict[str, str]) -> None:
    for path in (LOGIN, "/api/v2/nodes", "/nowhere"):
        for content in (MANY_FIELDS, in_chunks(MANY_FIELDS)):
            answer = httpx.post(
                site.people + path,
                content=content,
                headers={"Content-Type": JSON, **credentials},
                timeout=MINUTE,
                trust_env=False,
            )
            assert answer.status_code == 413, answer.text
    with site.client(token=True) as person:
        answer = person.post("/api/v2/nodes", content=MANY_FIELDS, headers={"Content-Type": JSON})
        assert (answer.status_code, len(answer.json()["errors"])) == (422, 20)


MADE_UP = {
    "bare": json.dumps(SEAL).encode(),
    "deep": json.dumps({"inventory": {"a": [{"b": SEAL}]}}).encode(),
    "half of one": json.dumps({"value": {"$sealed": None}}).encode(),
    "escaped": b'{"inventory": {"\\u0024sealed": "1:AAAA", "fingerprint": "x"}}',
    "UTF-16": json.dumps({"value": SEAL}).encode("utf-16"),
    "UTF-32": json.dumps({"value": SEAL}).encode("utf-32-le"),
}


def test_a_made_up_seal_is_refused_at_either_listener_before_anything_else(site: Front) -> None:
    for listener in site.listeners:
        for what, body in MADE_UP.items():
            answer = post(listener, REGISTER, body)
            assert answer.status_code == 422, f"{what}: {answer.text}"
            reason = "is no" if what.startswith("UTF") else "sealed values are made by the server alone"
            assert reason in answer.json()["detail"], f"{what}: {answer.text}"


def test_a_patch_makes_no_seal_and_reaches_into_none(site: Front) -> None:
    operations = [
        {"op": "add", "path": "/hint/x", "value": SEAL},
        {"op": "add", "path": "/hint/$sealed", "value": "1:AAAA"},
        {"op": "copy", "path": "/hint/free", "from": "/hint/bmc/password/$sealed"},
    ]
    path = "/api/v2/nodes/n1.rack.example"
    with site.client(token=True) as administrator:
        node = {"name": "n1.rack.example", "macs": ["52:54:00:00:00:01"]}
        assert administrator.post("/api/v2/nodes", json=node).status_code == 201
        for operation in operations:
            kind = {"Content-Type": "application/json-patch+json"}
            answer = administrator.patch(path, content=json.dumps([operation]), headers=kind)
            assert answer.status_code == 422, f"{operation}: {answer.text}"
            assert "sealed" in answer.json()["detail"]
        assert administrator.get(path).json()["hint"] == {}
