"""OpenSSH's signatures: what counts, for what, and what is said when one does not."""

from pathlib import Path

import pytest
from tests.support.programs import make_ssh_key

from rackwright.states.ssh_signatures import (
    CannotSign,
    KeygenMissing,
    UnknownSigner,
    WrongSignature,
    find_signer,
    make_signature,
)

PURPOSE = "rackwright-test"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_ssh_key(tmp_path / "key")


@pytest.fixture
def signers(tmp_path: Path, key: Path) -> Path:
    file = tmp_path / "signers"
    file.write_text(f"ada {Path(f'{key}.pub').read_text()}")
    return file


def test_a_signature_names_who_made_it(key: Path, signers: Path) -> None:
    signature = make_signature(b"text", key, PURPOSE)
    assert signature.startswith("-----BEGIN SSH SIGNATURE-----\n")
    assert find_signer(b"text", signature, signers, PURPOSE) == "ada"


def test_a_signature_counts_for_its_own_text_and_purpose_alone(key: Path, signers: Path) -> None:
    signature = make_signature(b"text", key, PURPOSE)
    with pytest.raises(WrongSignature, match=r"\w"):
        find_signer(b"another text", signature, signers, PURPOSE)
    with pytest.raises(WrongSignature, match=r"\w"):
        find_signer(b"text", signature, signers, "another-purpose")


def test_a_key_that_is_not_in_the_file_is_unknown(signers: Path, tmp_path: Path) -> None:
    signature = make_signature(b"text", make_ssh_key(tmp_path / "stranger"), PURPOSE)
    with pytest.raises(UnknownSigner, match=r"\w"):
        find_signer(b"text", signature, signers, PURPOSE)


def test_what_is_no_signature_is_refused(signers: Path) -> None:
    with pytest.raises(UnknownSigner, match=r"\w"):
        find_signer(b"text", "not a signature", signers, PURPOSE)


def test_a_key_that_is_not_there_cannot_sign(tmp_path: Path) -> None:
    with pytest.raises(CannotSign, match="nothing"):
        make_signature(b"text", tmp_path / "nothing", PURPOSE)


def test_without_ssh_keygen_it_says_so(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(KeygenMissing, match="ssh-keygen"):
        make_signature(b"text", key, PURPOSE)
