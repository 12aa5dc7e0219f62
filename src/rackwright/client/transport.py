"""HTTP connections to a server, blocking or asynchronous, and the sending of calls over them.

This is the only module of the client that imports the HTTP library. That takes longer to load than a command needs to
print its help, so the others import this module late.
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from rackwright.client.access import PREFIX, Access
from rackwright.client.calls import Answer, Call
from rackwright.client.errors import BadAddress, NoAnswer, problem_from
from rackwright.shown_urls import shown_url

KEEP_ALIVE_SECONDS = 5.0
"""How long an idle connection is kept: less than the server keeps it (75 s), or it is closed just when it is used
again, and nobody knows whether the request was taken."""


def open_http(
    access: Access,
    timeout: float,
    *,
    base: str = PREFIX,
    headers: Mapping[str, str] | None = None,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Return a client whose requests go below `base` of a server, with its token."""
    with _checking_url(access):
        return httpx.Client(**_settings(access, timeout, base, headers), transport=transport)


def open_async_http(
    access: Access,
    timeout: float,
    *,
    base: str = PREFIX,
    headers: Mapping[str, str] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """Return a client whose requests go below `base` of a server, with its token, and are awaited."""
    with _checking_url(access):
        return httpx.AsyncClient(**_settings(access, timeout, base, headers), transport=transport)


def _settings(access: Access, timeout: float, base: str, headers: Mapping[str, str] | None) -> dict[str, Any]:
    token = {"Authorization": f"Bearer {access.token}"} if access.token else {}
    return {
        "base_url": f"{access.url}{base}",
        "timeout": timeout,
        "trust_env": False,
        "verify": _trusted_certificates(access.ca),
        "headers": {**token, **(headers or {})},
        "limits": httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=KEEP_ALIVE_SECONDS),
    }


@contextmanager
def _checking_url(access: Access) -> Iterator[None]:
    """Raise BadAddress if the URL is none, or not one of HTTP."""
    try:
        scheme = httpx.URL(access.url).scheme
        yield
    except httpx.InvalidURL as error:
        raise BadAddress(
            f"{shown_url(access.url)} is no URL of a server ({error}); one is http://127.0.0.1:8090."
        ) from error
    if scheme not in ("http", "https"):
        raise BadAddress(f"{shown_url(access.url)} begins with neither http:// nor https://.")


def _trusted_certificates(ca: str | None) -> ssl.SSLContext | bool:
    """Return the certificates of a file to trust, or True: those of this host."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise BadAddress(f"The certificates in {ca} cannot be read: {error}") from error


def send(http: httpx.Client, access: Access, call: Call) -> Answer | NoAnswer:
    """Send a call, and return what came back."""
    try:
        return _answer(http.send(_request(http, call)))
    except httpx.TransportError as error:
        return _no_answer(access, error)


async def send_async(http: httpx.AsyncClient, access: Access, call: Call) -> Answer | NoAnswer:
    """Send a call, and return what came back."""
    try:
        return _answer(await http.send(_request(http, call)))
    except httpx.TransportError as error:
        return _no_answer(access, error)


def _request(http: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
    return http.build_request(
        call.method, call.path, content=call.content, headers=dict(call.headers), params=dict(call.query)
    )


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)


def _no_answer(access: Access, error: httpx.TransportError) -> NoAnswer:
    return NoAnswer(access.url, str(error) or type(error).__name__)


def stream_lines(http: httpx.Client, call: Call, timeout: float) -> Iterator[str]:
    """Send a call, and give the lines of its answer as they come, until the server ends it or goes away."""
    try:
        with http.stream(
            call.method, call.path, headers=dict(call.headers), params=dict(call.query), timeout=timeout
        ) as response:
            if not response.is_success:
                raise problem_from(response.status_code, response.read(), str(call))
            yield from response.iter_lines()
    except httpx.TransportError:
        return
