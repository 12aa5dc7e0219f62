"""The identity of a server: its name, its key and the certificate that the cluster's CA gave it.

Makes, stores and reads them, and pins the CA by its fingerprint. Who may get a certificate is decided in
`mesh/joining/admission.py`; how connections use it is `mesh/transport/tls.py`.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from rackwright.mesh.errors import BadIdentity, WrongFingerprint
from rackwright.private_files import write_private_file

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MAX_PEM = 16 * 1024
NUMBER_SHIFT = 64
"""A serial is the CA's issue number, then 64 random bits: a revocation can say "all of this name up to here"."""


def checked_name(name: str) -> str:
    """Return the name of a server if it is a valid one, else raise BadIdentity.

    It becomes the name of a certificate, of a file and of a column, so it must be plain.
    """
    if not NAME.fullmatch(name):
        raise BadIdentity(
            f"{name!r} cannot be a server's name; use 1 to 63 of a-z, 0-9 and '-', beginning and ending with no '-'"
        )
    return name


def new_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def key_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_digest(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(public_pem(key)).hexdigest()


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the fingerprint by which people name a CA: `SHA256:` and base64 without padding, as SSH prints host
    keys."""
    digest = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def make_signing_request(name: str, key: Ed25519PrivateKey) -> bytes:
    """Return a signing request: it proves that the sender holds the key."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, checked_name(name))])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, None).public_bytes(serialization.Encoding.PEM)


def read_signing_request(pem: bytes) -> tuple[str, Ed25519PublicKey]:
    """Return the name and key of a signing request, or raise BadIdentity unless it is signed by that key.

    Nothing else in it is used.
    """
    try:
        request = x509.load_pem_x509_csr(pem[:MAX_PEM])
        key, valid = request.public_key(), request.is_signature_valid
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, TypeError, x509.InvalidVersion) as problem:
        raise BadIdentity(f"the signing request cannot be read: {problem}") from problem
    if not isinstance(key, Ed25519PublicKey) or not valid or len(names) != 1:
        raise BadIdentity("the signing request must carry one name and be signed by its own ed25519 key")
    return checked_name(str(names[0].value)), key


def read_certificate(pem: bytes, what: str = "certificate") -> x509.Certificate:
    """Return the certificate in a PEM text. `what` names it in the error."""
    try:
        return x509.load_pem_x509_certificate(pem[:MAX_PEM])
    except ValueError as problem:
        raise BadIdentity(f"the {what} cannot be read: {problem}") from problem


def name_of(certificate: x509.Certificate) -> str:
    """Return the only DNS name in a member's certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (name,) = names.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError) as problem:
        raise BadIdentity("the certificate does not carry exactly one name") from problem
    return checked_name(name)


def number_of(serial: int) -> int:
    """Return the CA's issue number in a serial."""
    return serial >> NUMBER_SHIFT


def read_pinned_ca(pem: bytes, expected: str) -> x509.Certificate:
    """Return the CA if it has the fingerprint that a person entered here, else raise WrongFingerprint."""
    ca = read_certificate(pem, "cluster's CA")
    if fingerprint(ca) != expected.strip():
        raise WrongFingerprint(
            f"the CA offered there has the fingerprint {fingerprint(ca)}, not {expected.strip()}: this is another"
            " cluster or somebody in between; check the join line on a member with: rackwright mesh status"
        )
    return ca


def check_issued(certificate: x509.Certificate, ca: x509.Certificate, key: Ed25519PublicKey) -> None:
    """Refuse a certificate that this CA did not sign or that is for another key."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature) as problem:
        raise BadIdentity("the certificate is not signed by the cluster's CA") from problem
    certified_key = certificate.public_key()
    if not isinstance(certified_key, Ed25519PublicKey) or public_pem(certified_key) != public_pem(key):
        raise BadIdentity("the certificate is for another key")


@dataclass(frozen=True)
class Identity:
    """The key and certificate of a member, which prove its name, and the CA."""

    key: Ed25519PrivateKey
    certificate: x509.Certificate
    ca: x509.Certificate

    @property
    def name(self) -> str:
        return name_of(self.certificate)

    @property
    def expires(self) -> datetime:
        return self.certificate.not_valid_after_utc

    @property
    def renew_at(self) -> datetime:
        """The time to renew: after two thirds of its life. The last third is for finding a CA that answers."""
        begin = self.certificate.not_valid_before_utc
        return begin + (self.expires - begin) * 2 / 3

    def is_renewal_due(self, now: datetime | None = None) -> bool:
        return (now or datetime.now(UTC)) >= self.renew_at


class IdentityFiles:
    """The files of an identity.

    Key and certificate share one file, so that a crash never leaves one without the other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = folder / "node.pem"
        self.ca = folder / "ca.pem"

    def save(self, identity: Identity) -> None:
        write_private_file(self.ca, certificate_pem(identity.ca))
        write_private_file(self.node, key_pem(identity.key) + certificate_pem(identity.certificate))

    def load(self) -> Identity:
        try:
            node_pem, ca_pem = self.node.read_bytes(), self.ca.read_bytes()
        except FileNotFoundError as problem:
            raise BadIdentity(
                f"there is no identity in {self.folder}; make a cluster with: rackwright mesh init, or enter one with:"
                " rackwright mesh join"
            ) from problem
        try:
            key = serialization.load_pem_private_key(node_pem, None)
        except (ValueError, TypeError) as problem:
            raise BadIdentity(
                f"the key in {self.node} cannot be read; join again with: rackwright mesh join"
            ) from problem
        if not isinstance(key, Ed25519PrivateKey):
            raise BadIdentity(f"the key in {self.node} is not an ed25519 key; join again with: rackwright mesh join")
        has_certificate = b"CERTIFICATE" in node_pem
        certificate = read_certificate(
            node_pem[node_pem.index(b"-----BEGIN CERTIFICATE") :] if has_certificate else b""
        )
        ca = read_certificate(ca_pem, "cluster's CA")
        check_issued(certificate, ca, key.public_key())
        return Identity(key, certificate, ca)


class OwnIdentity:
    """The current identity of this server: read from disk once, and replaced when its certificate is renewed."""

    def __init__(self, files: IdentityFiles) -> None:
        self._files = files
        self.current = files.load()

    def replace(self, identity: Identity) -> None:
        """Save a new identity to disk, then use it: one that cannot be saved is not used."""
        self._files.save(identity)
        self.current = identity
