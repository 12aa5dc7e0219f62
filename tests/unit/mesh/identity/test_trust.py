"""Which signatures count: the CA's list of trusted keys, and OpenSSH signatures made with them."""

from pathlib import Path

import pytest
from tests.support.programs import make_ssh_key

from rackwright.mesh.errors import BadRecords, BadRequest
from rackwright.mesh.identity import trust
from rackwright.mesh.identity.authority import Authority, AuthorityFiles
from rackwright.mesh.identity.trust import BadSignature, Signers, SignersFile, sign_signers


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return AuthorityFiles(tmp_path / "ca").create("test")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_ssh_key(tmp_path / "key")


def public(key: Path) -> str:
    return Path(f"{key}.pub").read_text()


def test_a_list_is_taken_if_the_ca_signed_it_and_only_forwards(authority: Authority, key: Path, tmp_path: Path) -> None:
    file = SignersFile(tmp_path, authority.ca)
    first = Signers().with_key("alice", public(key))
    assert file.take(sign_signers(first, authority.key))
    assert not file.take(sign_signers(first, authority.key))
    assert file.take(sign_signers(first.without("alice"), authority.key))
    assert not file.take(sign_signers(first, authority.key)), "an older list does not bring a removed key back"
    assert SignersFile(tmp_path, authority.ca).current.version == 2


def test_a_list_of_another_ca_or_with_a_key_more_is_refused(authority: Authority, key: Path, tmp_path: Path) -> None:
    file = SignersFile(tmp_path, authority.ca)
    other = AuthorityFiles(tmp_path / "other").create("other")
    fresh = Signers().with_key("mallory", public(key))
    with pytest.raises(BadRecords):
        file.take(sign_signers(fresh, other.key))
    signature = sign_signers(Signers(1), authority.key).partition(b"\n")[0]
    with pytest.raises(BadRecords):
        file.take(signature + b"\n" + fresh.payload())
    assert file.current == Signers()


def test_a_signature_counts_for_its_text_and_its_purpose_only(authority: Authority, key: Path, tmp_path: Path) -> None:
    file = SignersFile(tmp_path, authority.ca)
    file.take(sign_signers(Signers().with_key("alice", public(key)), authority.key))
    signature = trust.sign(b"text", key)
    assert trust.verify(b"text", signature, file.allowed) == "alice"
    with pytest.raises(BadSignature, match="does not fit"):
        trust.verify(b"other text", signature, file.allowed)
    with pytest.raises(BadSignature):
        trust.verify(b"text", trust.sign(b"text", key, "rackwright-module"), file.allowed)


def test_a_key_that_is_no_longer_trusted_does_not_count(authority: Authority, key: Path, tmp_path: Path) -> None:
    file = SignersFile(tmp_path, authority.ca)
    signature = trust.sign(b"text", key)
    with pytest.raises(BadSignature, match="no operator's key is trusted"):
        trust.verify(b"text", signature, file.allowed)
    signers = Signers().with_key("alice", public(key))
    file.take(sign_signers(signers.without("alice"), authority.key))
    with pytest.raises(BadSignature, match="not trusted"):
        trust.verify(b"text", signature, file.allowed)


@pytest.mark.parametrize(("name", "text"), [("alice", "no key"), ("a b", "ssh-ed25519 " + "A" * 60), ("", "x")])
def test_what_is_no_key_is_not_added(name: str, text: str) -> None:
    with pytest.raises(BadRequest, match="public key"):
        Signers().with_key(name, text)
