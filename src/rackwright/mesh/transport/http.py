"""The small part of HTTP/1.1 that the mesh speaks: one strict request head, one bounded body, one response.

Anything else is refused, because strangers can reach this. Which paths exist is `transport.py`.
"""

import asyncio
import json
import re
import ssl
from dataclasses import dataclass
from typing import Any

from rackwright.mesh.address import Address
from rackwright.mesh.errors import BadRequest, Unreachable
from rackwright.mesh.transport.tls import Peer

MAX_HEAD = 4 * 1024
MAX_BODY = 16 * 1024
READ_SECONDS = 5.0
CALL_SECONDS = 30.0
MAX_ANSWER = 256 * 1024
JOIN, RENEW = "/mesh/v1/join", "/mesh/v1/renew"
STREAM = "/mesh/v1/stream"
UPGRADE = "rackwright-mesh/1"
REASONS = {101: "Switching Protocols", 200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
REASONS |= {409: "Conflict", 429: "Too Many Requests", 502: "Bad Gateway", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Request:
    """A request, with the peer that sent it (None: it showed no certificate) and the address it came from."""

    method: str
    path: str
    body: bytes
    peer: Peer | None
    source: str
    upgrade: str = ""

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object, or raise BadRequest."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError) as problem:
            raise BadRequest("the body is not JSON") from problem
        if not isinstance(content, dict):
            raise BadRequest("the body is not a JSON object")
        return content


@dataclass(frozen=True)
class Response:
    """A status, and a JSON object as the body."""

    status: int
    content: dict[str, Any]


def parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return the method, the path and the headers (names in lower case) of a head that ends with an empty line."""
    try:
        first, *lines = head.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    except UnicodeDecodeError as problem:
        raise BadRequest("the head is not ASCII") from problem
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] != "HTTP/1.1" or not parts[1].startswith("/"):
        raise BadRequest("the first line is not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or name.lower() in headers:
            raise BadRequest("a header cannot be read or comes twice")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest("a transfer encoding is not spoken here")
    return parts[0], parts[1], headers


async def read_request(reader: asyncio.StreamReader, peer: Peer | None, source: str) -> Request:
    """Read a request, or raise BadRequest."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            method, path, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
            length = headers.get("content-length", "0")
            if not length.isdecimal() or len(length) > 6 or int(length) > MAX_BODY:
                raise BadRequest(f"the body may have {MAX_BODY} bytes at most")
            body = await reader.readexactly(int(length))
    except asyncio.LimitOverrunError as problem:
        raise BadRequest("the head is too long") from problem
    except (TimeoutError, asyncio.IncompleteReadError) as problem:
        raise BadRequest("the request ended early or came too slowly") from problem
    return Request(method, path, body, peer, source, headers.get("upgrade", ""))


def render_response(response: Response) -> bytes:
    """Return the bytes of a response."""
    body = json.dumps(response.content).encode()
    head = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def upgrade_request(host: str) -> bytes:
    """Return the request to turn a connection into a stream."""
    lines = [f"GET {STREAM} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", f"Upgrade: {UPGRADE}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def upgrade_response(advertise: str) -> bytes:
    """Return the response that turns the connection into a stream.

    It carries the address at which others reach this member, for the peer may have dialled another name or address.
    """
    lines = [f"HTTP/1.1 101 {REASONS[101]}", "Connection: Upgrade", f"Upgrade: {UPGRADE}", f"Advertise: {advertise}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def read_advertised(head: bytes) -> str | None:
    """Return the address in the head of a response that turned the connection into a stream; None if it did not."""
    if not head.startswith(b"HTTP/1.1 101 "):
        return None
    header = re.search(rb"\r\nAdvertise: ([\x21-\x7e]{1,270})\r\n", head)
    return header[1].decode("ascii") if header else None


async def call(
    address: Address,
    context: ssl.SSLContext,
    method: str,
    path: str,
    content: dict[str, Any],
    server: str | None = None,
) -> Response:
    """Send a request to a member and return its response.

    `server` is the name that its certificate must carry, where the context checks names.
    """
    body = json.dumps(content).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {server or 'mesh'}", f"Content-Length: {len(body)}"]
    try:
        async with asyncio.timeout(CALL_SECONDS):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=server or address.host, limit=MAX_HEAD
            )
            try:
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
                return await _read_response(reader)
            finally:
                writer.close()
    except TimeoutError as problem:
        raise Unreachable(f"{address} did not answer within {CALL_SECONDS:g} s") from problem
    except ssl.SSLError as problem:
        raise Unreachable(
            f"{address} did not agree on TLS: {problem.reason}; is it a member of this cluster?"
        ) from problem
    except OSError as problem:
        raise Unreachable(f"{address} cannot be reached: {problem.strerror or problem}") from problem


async def _read_response(reader: asyncio.StreamReader) -> Response:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        status, length = int(head.split(" ", 2)[1]), re.search(r"(?i)\r\ncontent-length: *([0-9]{1,6})\r\n", head)
        body = await reader.readexactly(min(int(length[1]), MAX_ANSWER) if length else 0)
        content = json.loads(body)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError, RecursionError) as problem:
        raise Unreachable("the answer is not that of a member") from problem
    if not isinstance(content, dict):
        raise Unreachable("the answer is not that of a member")
    return Response(status, content)
