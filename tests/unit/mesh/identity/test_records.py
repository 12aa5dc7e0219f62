"""The records about admission: they last, they are signed, and a token is used once."""

from pathlib import Path

import pytest

from rackwright.mesh.errors import BadRecords
from rackwright.mesh.identity.admission_records import FileRecords, Invite, IssuedCertificate, Token
from rackwright.mesh.identity.authority import AuthorityFiles
from rackwright.mesh.identity.revocation import (
    EMPTY,
    RevocationFile,
    Revocations,
    Revoked,
    sign_revocations,
    verify_revocations,
)
from rackwright.mesh.identity.server_identity import new_key

KEY = new_key()
INVITE = Invite("web1", "10.0.0.1", "SHA256:x", 1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.json"


async def test_records_are_there_after_a_restart(path: Path) -> None:
    records = FileRecords(path, KEY)
    await records.add_invite(INVITE)
    await records.add_certificate(IssuedCertificate("web1", await records.next_number(), "digest", 900), 0)
    await records.revoke("web2", 0)
    again = FileRecords(path, KEY)
    assert await again.invites() == [INVITE]
    assert await again.certificates() == [IssuedCertificate("web1", 1, "digest", 900)]
    assert (await again.revocations()).covers("web2", 1)
    assert await again.next_number() == 2


def tamper(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"10.0.0.1", b"10.0.0.2"))


async def test_records_changed_by_other_hands_are_refused(path: Path) -> None:
    await FileRecords(path, KEY).add_invite(INVITE)
    tamper(path)
    with pytest.raises(BadRecords, match="other hands"):
        FileRecords(path, KEY)


async def test_a_token_serves_one_key_only_and_that_one_again(path: Path) -> None:
    records = FileRecords(path, KEY)
    await records.add_token(Token("t", "web1", expires=100))
    assert await records.claim_token("t", "first", now=50) == Token("t", "web1", 100, "first")
    assert await records.claim_token("t", "second", now=51) is None
    assert await records.claim_token("t", "first", now=52) == Token("t", "web1", 100, "first")


async def test_an_old_or_unknown_token_serves_nobody(path: Path) -> None:
    records = FileRecords(path, KEY)
    await records.add_token(Token("t", "web1", expires=100))
    assert await records.claim_token("t", "key", now=100) is None
    assert await records.claim_token("u", "key", now=50) is None


async def test_revoking_a_name_takes_back_all_that_was_given_to_it(path: Path) -> None:
    records = FileRecords(path, KEY)
    await records.add_invite(INVITE)
    await records.add_token(Token("t", "web1", expires=100))
    for _ in range(3):
        await records.add_certificate(IssuedCertificate("web1", await records.next_number(), "digest", 900), 0)
    revoked = await records.revoke("web1", 0)
    assert [revoked.covers("web1", number) for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert await records.invites() == []
    assert await records.claim_token("t", "key", now=50) is None


def test_an_entry_is_forgotten_when_its_certificates_have_expired_by_themselves() -> None:
    first = EMPTY.with_name("web1", Revoked(1, until=100), now=0)
    second = first.with_name("web2", Revoked(2, until=300), now=200)
    assert (second.version, set(second.names)) == (2, {"web2"})


def test_only_a_list_signed_by_the_ca_is_taken_and_only_a_newer_one(tmp_path: Path) -> None:
    authority = AuthorityFiles(tmp_path).create("test")
    file = RevocationFile(tmp_path / "revocations.json", authority.ca)
    second = Revocations(2, {"web1": Revoked(1, 100)})
    with pytest.raises(BadRecords, match="without the CA's signature"):
        file.take(sign_revocations(second, new_key()))
    assert file.current == EMPTY
    assert file.take(sign_revocations(second, authority.key))
    assert not file.take(sign_revocations(Revocations(1), authority.key)), "an older list must not bring anyone back"
    assert RevocationFile(tmp_path / "revocations.json", authority.ca).current == second


@pytest.mark.parametrize("signed", [b"", b"\n", b"AAAA\n{}", b"\xff\xff\n{}"])
def test_bytes_that_are_no_list_are_refused(signed: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadRecords):
        verify_revocations(signed, AuthorityFiles(tmp_path).create("test").ca)
