"""Names, certificates and what is refused of them."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackwright.mesh.errors import BadIdentity, WrongFingerprint
from rackwright.mesh.identity import server_identity
from rackwright.mesh.identity.authority import Authority, AuthorityFiles, token_proof


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return AuthorityFiles(tmp_path).create("test")


@pytest.mark.parametrize("name", ["a", "web1", "rack-2-node-17", "x" * 63])
def test_a_plain_name_is_taken(name: str) -> None:
    assert server_identity.checked_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a b", "x" * 64, "a\n", "ä", "../a", "*"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(BadIdentity, match="cannot be a server's name"):
        server_identity.checked_name(name)


def test_a_request_yields_the_name_and_key_it_was_made_for() -> None:
    key = server_identity.new_key()
    name, public_key = server_identity.read_signing_request(server_identity.make_signing_request("web1", key))
    assert (name, server_identity.public_pem(public_key)) == ("web1", server_identity.public_pem(key.public_key()))


def test_a_request_of_another_kind_of_key_is_refused() -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web1")])
    key = ec.generate_private_key(ec.SECP256R1())
    from cryptography.hazmat.primitives import hashes

    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    with pytest.raises(BadIdentity, match="ed25519"):
        server_identity.read_signing_request(pem.public_bytes(Encoding.PEM))


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"])
def test_a_request_that_cannot_be_read_is_refused(pem: bytes) -> None:
    with pytest.raises(BadIdentity, match="cannot be read"):
        server_identity.read_signing_request(pem)


async def test_a_certificate_serves_both_sides_of_one_name_for_its_life(authority: Authority) -> None:
    key = server_identity.new_key()
    certificate = await authority.issue("web1", key.public_key())
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert server_identity.name_of(certificate) == "web1"
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert (
        timedelta(days=7)
        <= certificate.not_valid_after_utc - certificate.not_valid_before_utc
        < timedelta(days=7, hours=2)
    )
    server_identity.check_issued(certificate, authority.ca, key.public_key())


async def test_every_certificate_has_a_higher_number_than_the_one_before(authority: Authority) -> None:
    key = server_identity.new_key().public_key()
    certificates = [await authority.issue("web1", key) for _ in range(3)]
    assert [server_identity.number_of(certificate.serial_number) for certificate in certificates] == [1, 2, 3]


async def test_a_certificate_of_another_ca_or_key_is_refused(authority: Authority, tmp_path: Path) -> None:
    key = server_identity.new_key()
    certificate = await authority.issue("web1", key.public_key())
    other = AuthorityFiles(tmp_path / "other").create("other")
    with pytest.raises(BadIdentity, match="not signed by the cluster's CA"):
        server_identity.check_issued(certificate, other.ca, key.public_key())
    with pytest.raises(BadIdentity, match="another key"):
        server_identity.check_issued(certificate, authority.ca, server_identity.new_key().public_key())


def test_only_the_ca_with_the_pinned_fingerprint_is_taken(authority: Authority, tmp_path: Path) -> None:
    pem = server_identity.certificate_pem(authority.ca)
    fingerprint = server_identity.fingerprint(authority.ca)
    assert server_identity.read_pinned_ca(pem, f" {fingerprint}\n") == authority.ca
    other = AuthorityFiles(tmp_path / "other").create("other")
    with pytest.raises(WrongFingerprint, match="another cluster"):
        server_identity.read_pinned_ca(server_identity.certificate_pem(other.ca), fingerprint)


async def test_an_identity_survives_the_disk_and_is_nobody_elses_to_read(authority: Authority, tmp_path: Path) -> None:
    key = server_identity.new_key()
    identity = server_identity.Identity(key, await authority.issue("web1", key.public_key()), authority.ca)
    files = server_identity.IdentityFiles(tmp_path / "node")
    files.save(identity)
    loaded = files.load()
    assert (loaded.name, loaded.certificate) == ("web1", identity.certificate)
    assert files.node.stat().st_mode & 0o777 == 0o600


def test_a_missing_identity_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadIdentity, match="rackwright mesh join"):
        server_identity.IdentityFiles(tmp_path).load()


def test_the_ca_key_is_encrypted_at_rest_and_opens_with_its_passphrase_only(tmp_path: Path) -> None:
    files = AuthorityFiles(tmp_path)
    authority = files.create("test")
    assert b"ENCRYPTED PRIVATE KEY" in files.key.read_bytes()
    assert files.open().key.private_bytes_raw() == authority.key.private_bytes_raw()
    files.passphrase_file.write_text("guess")
    with pytest.raises(BadIdentity, match="does not open the CA's key"):
        files.open()


def test_a_token_proof_is_good_for_one_key_and_one_ca(authority: Authority) -> None:
    secret = authority.token_secret("id")
    key, other = server_identity.new_key().public_key(), server_identity.new_key().public_key()
    proofs = {token_proof(secret, key, "a"), token_proof(secret, other, "a"), token_proof(secret, key, "b")}
    assert len(proofs) == 3
    assert authority.token_secret("id") == secret != authority.token_secret("di")
