"""The HTTP that strangers can reach: strict, bounded, and never more than a refusal."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.errors import BadRequest, BadSettings, TooMany
from rackwright.mesh.joining.admission import RateLimit
from rackwright.mesh.transport import http


async def read(sent: bytes) -> http.Request:
    reader = asyncio.StreamReader(limit=http.MAX_HEAD)
    reader.feed_data(sent)
    reader.feed_eof()
    return await http.read_request(reader, None, "10.0.0.9")


async def test_a_request_with_a_body_is_read() -> None:
    request = await read(b'POST /mesh/v1/join HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n{"a": 1}and more')
    assert (request.method, request.path, request.json()) == ("POST", "/mesh/v1/join", {"a": 1})


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET http://x/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\r\n\r\n",
        b"GET / HTTP/1.1\r\n A: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 10\r\n\r\nshort",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_anything_but_a_strict_request_is_refused(sent: bytes) -> None:
    with pytest.raises(BadRequest):
        await read(sent)


@given(st.binary(max_size=300))
def test_no_head_is_more_than_a_refusal(head: bytes) -> None:
    try:
        method, path, _ = http.parse_head(head + b"\r\n\r\n")
    except BadRequest:
        return
    assert path.startswith("/")
    assert " " not in method


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 15_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        http.Request("POST", "/", body, None, "x").json()


def test_the_advertised_address_is_read_from_a_switch_only() -> None:
    assert http.read_advertised(http.upgrade_response("10.0.0.1:7946")) == "10.0.0.1:7946"
    assert http.read_advertised(http.render_response(http.Response(403, {}))) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", Address("10.0.0.1", 7946)),
        ("10.0.0.1:80", Address("10.0.0.1", 80)),
        ("fd00::1", Address("fd00::1", 7946)),
        ("[fd00::1]:80", Address("fd00::1", 80)),
        ("[fd00::1]", Address("fd00::1", 7946)),
        ("web1.example:1", Address("web1.example", 1)),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":80", "a:0", "a:65536", "a:b", "a b", "root@a", "a/b", "[]:1"])
def test_any_other_address_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="is not an address"):
        parse_address(text)


async def test_one_source_cannot_ask_without_end_nor_use_up_what_others_have() -> None:
    rate = RateLimit(each=2, all=5)
    for _ in range(2):
        rate.check("a")
    with pytest.raises(TooMany):
        rate.check("a")
    for source in ("b", "c", "d"):
        rate.check(source)
    with pytest.raises(TooMany):
        rate.check("e")
