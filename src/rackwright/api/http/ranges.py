"""Sending bytes that lie in no single file, whole or the part that was asked for.

One range of bytes is understood, as clients that go on with a broken download send it. Anything else gets the whole,
which the standard allows; of a range that ends before it begins it says so (RFC 9110, 14.1.1 and 14.2).
"""

import re
from collections.abc import Callable, Iterator, Mapping

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

RANGE = re.compile(r"bytes=(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})")
BYTES = "application/octet-stream"


def send_range(
    request: Request, size: int, read: Callable[[int, int], Iterator[bytes]], headers: Mapping[str, str]
) -> Response:
    """Return the response to a request; `read` yields the bytes from an offset up to another."""
    headers = {**headers, "Accept-Ranges": "bytes"}
    if request.method == "HEAD":  # of the whole: a range means something with GET only
        return Response(headers={**headers, "Content-Length": str(size)}, media_type=BYTES)
    part = _wanted_part(request.headers, size, headers["ETag"])
    if part is None:
        return _stream(read(0, size), size, headers, 200)
    first, end = part
    if first >= end:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    content_range = f"bytes {first}-{end - 1}/{size}"
    return _stream(read(first, end), end - first, {**headers, "Content-Range": content_range}, 206)


def _stream(content: Iterator[bytes], length: int, headers: Mapping[str, str], status: int) -> Response:
    return StreamingResponse(content, status, {**headers, "Content-Length": str(length)}, media_type=BYTES)


def _wanted_part(asked: Mapping[str, str], size: int, etag: str) -> tuple[int, int] | None:
    """Return the first offset that is wanted and the one behind the last, the same if there is nothing; None: all."""
    wanted = RANGE.fullmatch(asked.get("range", ""))
    if wanted is None or asked.get("if-range", etag) != etag or not (wanted["first"] or wanted["last"]):
        return None
    if not wanted["first"]:
        return max(size - int(wanted["last"]), 0), size
    first = int(wanted["first"])
    if wanted["last"] and int(wanted["last"]) < first:
        return None
    return first, max(min(int(wanted["last"] or size) + 1, size), first)
