"""Secrets that only the servers can read for which they were sealed, and only in the run they were sealed for."""

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from rackwright.mesh.identity import sealing
from rackwright.mesh.identity.authority import Authority, AuthorityFiles
from rackwright.mesh.identity.sealing import BadSeal, load_seal_key, make_seal_record, seal, unseal, verify_seal_record
from rackwright.mesh.identity.server_identity import Identity, new_key
from rackwright.mesh.runs.run_model import RunRequest, Targets, read_request

REQUEST = RunRequest("r1", "SHA256:x", 10, 20, "digest", Targets(("s*",)), ["init"], secrets=["password"])
VALUES = {"password": "hunter22", "many": [1, {"a": None}]}
BOUND = REQUEST.dump_without_sealed()
KEYS = {name: X25519PrivateKey.generate() for name in ("s1", "s2")}


def sealed() -> dict[str, Any]:
    return seal(VALUES, {name: key.public_key() for name, key in KEYS.items()}, BOUND)


@pytest.mark.parametrize("name", ["s1", "s2"])
def test_each_server_it_was_sealed_for_can_read_it_also_after_it_has_travelled(name: str) -> None:
    request = read_request(replace(REQUEST, sealed=sealed()).dump())
    assert unseal(request.sealed, name, KEYS[name], request.dump_without_sealed()) == VALUES


def test_nothing_of_it_can_be_read_from_what_travels() -> None:
    text = replace(REQUEST, sealed=sealed()).dump()
    boxes = [b64decode(box) for box in json.loads(text)["sealed"]["boxes"].values()]
    assert "hunter22" not in text
    assert not any(b"hunter22" in box or b"many" in box for box in boxes)


def test_whom_it_was_not_sealed_for_cannot_read_it() -> None:
    with pytest.raises(BadSeal, match="not sealed for s3"):
        unseal(sealed(), "s3", X25519PrivateKey.generate(), BOUND)
    for name, key in (("s1", KEYS["s2"]), ("s1", X25519PrivateKey.generate())):
        with pytest.raises(BadSeal, match="do not open"):
            unseal(sealed(), name, key, BOUND)


def test_the_box_of_another_server_does_not_open() -> None:
    harm = sealed()
    harm["boxes"]["s1"] = harm["boxes"]["s2"]
    with pytest.raises(BadSeal):
        unseal(harm, "s1", KEYS["s1"], BOUND)


@pytest.mark.parametrize("place", [0, 5, -1])
def test_an_altered_value_does_not_open(place: int) -> None:
    harm = sealed()
    box = bytearray(b64decode(harm["boxes"]["s1"]))
    box[place] ^= 1
    harm["boxes"]["s1"] = b64encode(bytes(box)).decode()
    with pytest.raises(BadSeal, match="altered"):
        unseal(harm, "s1", KEYS["s1"], BOUND)


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, id="r2"),
        replace(REQUEST, tree="other states"),
        replace(REQUEST, targets=Targets(("s1",))),
        replace(REQUEST, secrets=[]),
    ],
)
def test_a_value_that_was_sealed_for_another_run_does_not_open(other: RunRequest) -> None:
    with pytest.raises(BadSeal, match="another run"):
        unseal(sealed(), "s1", KEYS["s1"], other.dump_without_sealed())


@pytest.mark.parametrize("harm", [{"key": "", "boxes": {"s1": ""}}, {"key": "AA", "boxes": {"s1": "x"}}])
def test_what_is_no_sealed_value_is_refused_in_words(harm: dict[str, Any]) -> None:
    with pytest.raises(BadSeal):
        unseal(harm, "s1", KEYS["s1"], BOUND)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return AuthorityFiles(tmp_path / "ca").create("test")


async def member(authority: Authority, name: str) -> Identity:
    key = new_key()
    return Identity(key, await authority.issue(name, key.public_key()), authority.ca)


async def test_a_servers_key_is_believed_if_its_certificate_vouches_for_it(authority: Authority) -> None:
    published = make_seal_record(await member(authority, "s1"), KEYS["s1"].public_key())
    assert verify_seal_record("s1", published, authority.ca) == KEYS["s1"].public_key()


async def test_a_key_that_its_server_did_not_sign_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = AuthorityFiles(tmp_path / "other").create("test")
    good = json.loads(make_seal_record(await member(authority, "s1"), KEYS["s1"].public_key()))
    exchanged = {**good, "key": b64encode(KEYS["s2"].public_key().public_bytes_raw()).decode()}
    forged = [json.dumps(exchanged).encode(), make_seal_record(await member(stranger, "s1"), KEYS["s2"].public_key())]
    for published in (*forged, b"", b"[]", b"{}", json.dumps({**good, "signature": "x"}).encode()):
        with pytest.raises(BadSeal, match="not signed by it"):
            verify_seal_record("s1", published, authority.ca)


async def test_the_key_of_another_server_is_refused(authority: Authority) -> None:
    published = make_seal_record(await member(authority, "s2"), KEYS["s2"].public_key())
    with pytest.raises(BadSeal, match="another server's"):
        verify_seal_record("s1", published, authority.ca)


async def test_a_key_whose_certificate_has_expired_is_refused(authority: Authority) -> None:
    identity = await member(authority, "s1")
    later = datetime.now(UTC) + authority.life + timedelta(days=1)
    with pytest.raises(BadSeal, match="not valid now"):
        verify_seal_record("s1", make_seal_record(identity, KEYS["s1"].public_key()), authority.ca, later)


def test_a_server_keeps_its_key_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    key = load_seal_key(tmp_path)
    assert load_seal_key(tmp_path).private_bytes_raw() == key.private_bytes_raw()
    assert (tmp_path / sealing.FILE).stat().st_mode & 0o777 == 0o600
