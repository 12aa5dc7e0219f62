"""Heads of requests that strangers send to either listener: none keeps the server busy.

The framework reads every cookie for every route, in time that grows with the square of what is quoted. It gets to see
one cookie, that of a session, in the plain letters that sessions are made of.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.servers.public_server import Front, front

from rackwright.api.auth.cookies import keep_session_cookie

MINUTE = 60.0
LITTLE = 2.0
"""Seconds of a processor. Without a bound one of these heads takes ten times that."""
HOSTILE = {
    "backslashes in quotes": 'rackwright_session="' + "\\" * 60_000 + '"',
    "escapes in quotes": 'rackwright_session="' + "\\1" * 30_000 + '"',
    "a cookie of somebody else": 'other="' + "\\" * 60_000 + '"',
    "many cookies": "a=b;" * 15_000,
    "separators and blanks": "; " * 30_000 + "a",
}


@pytest.fixture
def site(tmp_path: Path, started_url: str) -> Iterator[Front]:
    with front(tmp_path, started_url) as running:
        yield running


def processor_seconds(pid: int) -> float:
    """How long a process has been working so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("cookie", HOSTILE.values(), ids=HOSTILE)
def test_no_cookie_of_a_stranger_keeps_either_listener_busy(site: Front, cookie: str) -> None:
    before = processor_seconds(site.server.pid)
    for listener, path in ((site.people, "/api/v2/nodes"), (site.machines, "/healthz")):
        answer = httpx.get(listener + path, headers={"Cookie": cookie}, timeout=MINUTE, trust_env=False)
        assert answer.status_code in (200, 401), answer.text
    assert processor_seconds(site.server.pid) - before < LITTLE


SESSION = b"rackwright_session=AbC-_9"


@pytest.mark.parametrize(
    ("cookie_header", "seen"),
    [
        (SESSION, SESSION),
        (b"a=b; rackwright_session=AbC-_9 ;c=d", SESSION),
        (b"rackwright_session=older; rackwright_session=AbC-_9", SESSION),
        (b'rackwright_session="AbC-_9"', None),
        (b"other_rackwright_session=AbC-_9", None),
        (b"rackwright_session=" + b"a" * 129, None),
        (b"a=b", None),
    ],
)
def test_of_all_cookies_only_a_session_reaches_the_application(cookie_header: bytes, seen: bytes | None) -> None:
    host = (b"host", b"rack.example")
    expected = [host] if seen is None else [host, (b"cookie", seen)]
    assert keep_session_cookie([(b"cookie", cookie_header), host]) == expected
