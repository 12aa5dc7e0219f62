"""What somebody without a certificate of the mesh tries: junk at the join endpoint, and a token for another's address.

The join endpoint is all that strangers reach. Whatever they send there is refused in words, and no part of the agent
notices. Who holds a token becomes the member that the token names, at the address that the token was made for or that
the server has seen it come from; a certificate for another server's address would let it answer in that one's place.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.support.mesh.netns import cluster
from tests.support.mesh.stranger import nameless, request
from tests.support.waiting import PATIENCE

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.identity.server_identity import IdentityFiles, make_signing_request, new_key
from rackwright.mesh.joining import join

HERE = "127.0.0.1"
"""Where everybody on loopback comes from."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with cluster(tmp_path_factory.mktemp("alone"), ["s1"]) as fleet:
        yield fleet


def addresses_of(folder: Path) -> list[str]:
    certificate = IdentityFiles(folder).load().certificate
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(address) for address in names.get_values_for_type(x509.IPAddress)]


def enter(fleet: Fleet, folder: Path, name: str, advertise: str = "", address: str = "") -> None:
    """Join with a token that was made for `address`, asking for a certificate of `advertise`."""
    token = join.read_token(fleet.ask("s1", "token", name=name, address=address)["token"])
    advertised = Address(advertise, 7946) if advertise else None
    asyncio.run(join.join(folder, join.JoinOptions(token.name, token.address, token.ca, None, advertised, token)))


def test_a_token_gives_the_address_that_its_user_was_seen_at(alone: Fleet, tmp_path: Path) -> None:
    enter(alone, tmp_path, "honest", HERE)
    assert addresses_of(tmp_path) == [HERE]


def test_a_token_does_not_give_the_address_of_another_server(alone: Fleet, tmp_path: Path) -> None:
    with pytest.raises(join.JoinRefused, match=r"comes from 127\.0\.0\.1; make a token for that address"):
        enter(alone, tmp_path, "liar", parse_address(alone.address("s1")).host)
    assert not (tmp_path / "node.pem").exists()


def test_a_token_that_was_made_for_an_address_gives_that_one_and_no_other(alone: Fleet, tmp_path: Path) -> None:
    with pytest.raises(join.JoinRefused, match=r"made for 10\.9\.8\.7"):
        enter(alone, tmp_path, "elsewhere", HERE, address="10.9.8.7")
    enter(alone, tmp_path, "elsewhere", address="10.9.8.7")
    assert addresses_of(tmp_path) == ["10.9.8.7"]


def test_a_token_is_not_used_up_by_asking_for_a_wrong_address(alone: Fleet, tmp_path: Path) -> None:
    token = join.read_token(alone.ask("s1", "token", name="again")["token"])
    wish = join.JoinOptions(token.name, token.address, token.ca, None, Address("10.0.0.1", 1), token)
    with pytest.raises(join.JoinRefused):
        asyncio.run(join.join(tmp_path, wish))
    asyncio.run(
        join.join(tmp_path, join.JoinOptions(token.name, token.address, token.ca, None, Address(HERE, 1), token))
    )


def test_a_token_on_the_command_line_is_refused_with_the_way_out(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rackwright", "mesh", "join", "--token", "rwj1.secret", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 1
    assert "--token-file" in done.stderr
    assert "RACKWRIGHT_MESH_TOKEN" in done.stderr
    assert "rwj1.secret" not in done.stdout + done.stderr


JUNK = {
    "nothing": b"",
    "no JSON": b"\xff\xfe{",
    "a list": b"[]",
    "nested deeply": b"[" * 16_000,
    "no fields": b"{}",
    "wrong kinds": json.dumps({"csr": {}, "token": [], "proof": 7, "address": {}}).encode(),
    "half a character": json.dumps({"csr": "\ud800", "token": "\ud800", "proof": "\ud800", "address": "x"}).encode(),
    "no certificate request": json.dumps({"csr": "-----BEGIN", "token": "", "proof": "", "address": ""}).encode(),
    "a long number": b'{"csr": ' + b"9" * 15_000 + b"}",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
async def test_junk_at_the_join_endpoint_is_refused_and_troubles_no_part_of_the_agent(
    alone: Fleet, junk: bytes
) -> None:
    sent = b"POST /mesh/v1/join HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(junk), junk)
    answer = await request(parse_address(alone.address("s1")), nameless(), sent)
    assert b"400 Bad Request" in answer
    assert alone.ask("s1", "status")["failing_parts"] == {}


@pytest.mark.parametrize("kind", ["token", "proof", "address"])
async def test_junk_in_place_of_a_proof_is_refused_too(alone: Fleet, tmp_path: Path, kind: str) -> None:
    wish = {"csr": make_signing_request("joiner", new_key()).decode(), "token": "0", "proof": "0", "address": "x"}
    values: tuple[Any, ...] = ("\ud800", [], {}, None, 9**99)
    for value in values:
        junk = json.dumps({**wish, kind: value}).encode()
        sent = b"POST /mesh/v1/join HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(junk), junk)
        assert b"400 Bad Request" in await request(parse_address(alone.address("s1")), nameless(), sent)
    assert alone.ask("s1", "status")["failing_parts"] == {}
