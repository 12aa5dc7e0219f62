"""The HTTP adapter to a machine's controller: to that one host only, with limits on the size and time of responses.

sushy calls it from a thread, through requests, whose time-outs begin anew with every byte that arrives: a controller
that sends one now and then would keep the thread for ever. So the event loop does the work, which ends it on time.
"""

import asyncio
from collections.abc import Mapping
from ssl import SSLContext, create_default_context

import httpx
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from requests.exceptions import RequestException

MOST_ANSWER = 1024 * 1024
"""Bytes of a response. The description of a large system has a tenth of that."""


GRACE = 5.0
"""Seconds for which a thread waits beyond the end of its call. Only an event loop that has stopped takes them."""


class ControllerRefused(RequestException):
    """The controller redirected the server, or answered too much or too late. sushy does not try that again."""


class ControllerAdapter(BaseAdapter):
    """Sends the requests of one call to one controller. `ends` is when the call is over, by the clock of `loop`."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, ends: float) -> None:
        super().__init__()
        self._origin = _origin(address)
        self._loop = loop
        self._ends = ends
        self.has_answered = False
        """Whether the controller answered at all. The first request only reads: without an answer nothing was done."""

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: object = None,
        verify: bool | str = True,
        cert: object = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request from a thread. Links and redirects to other hosts are not followed."""
        address = request.url or ""
        if _origin(address) != self._origin:
            raise ControllerRefused(f"it sends the server elsewhere, to {address[:200]!r}")
        fetch = asyncio.run_coroutine_threadsafe(self._fetch(request, _tls(verify)), self._loop)
        try:
            response, content = fetch.result(self._ends - self._loop.time() + GRACE)
        except TimeoutError:
            raise ControllerRefused("the server ends, and waits for no answer") from None
        return _as_requests_response(request, response, content)

    def close(self) -> None:
        """Nothing is kept open between requests."""

    async def _fetch(self, request: PreparedRequest, tls: SSLContext | bool) -> tuple[httpx.Response, bytes]:
        assert request.body is None or isinstance(request.body, str | bytes), "sushy sends JSON"
        headers = {name: str(value) for name, value in request.headers.items()}
        try:
            async with (
                asyncio.timeout_at(self._ends),
                httpx.AsyncClient(verify=tls, trust_env=False, timeout=None) as client,  # noqa: S113  # the line above
                client.stream(str(request.method), str(request.url), content=request.body, headers=headers) as response,
            ):
                self.has_answered = True
                return response, await _bounded_content(response)
        except TimeoutError:
            raise ControllerRefused("it does not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RequestException(str(error) or type(error).__name__) from None


def _origin(address: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address; raise ControllerRefused if it is none at all."""
    try:
        parsed = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise ControllerRefused(f"{address[:200]!r} is no address: {error}") from None
    return parsed.scheme, parsed.host, parsed.port


def _tls(verify: bool | str) -> SSLContext | bool:
    """Return the TLS settings for a request.

    They are made in the thread, because reading the certificates of authorities takes a while.
    """
    if isinstance(verify, str):
        return create_default_context(cafile=verify)
    return httpx.create_ssl_context() if verify else False


async def _bounded_content(response: httpx.Response) -> bytes:
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > MOST_ANSWER:
            raise ControllerRefused(f"it answers with more than {MOST_ANSWER} bytes")
    return bytes(content)


def _as_requests_response(request: PreparedRequest, response: httpx.Response, content: bytes) -> Response:
    """Return a response of httpx as one of requests, read to its end."""
    converted = Response()
    converted.status_code = response.status_code
    converted.reason = response.reason_phrase
    converted.headers.update(response.headers)
    converted.url = str(request.url)
    converted.request = request
    converted.encoding = response.charset_encoding
    converted._content = content
    converted._content_consumed = True
    return converted
