"""The list of revoked certificates: signed by the CA, numbered, and passed from member to member.

One entry a name says "every certificate of this name up to this issue number", so that a server may come back under its
old name with a newer certificate, and no clock is needed to decide. The agent spreads the list.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from rackwright.mesh.errors import BadRecords
from rackwright.private_files import write_private_file

MAX_BYTES = 1024 * 1024
CONTEXT = b"rackwright revocations 1\n"
"""Signed together with the list, so that no signature of another kind can pass for this one."""


class Revoked(NamedTuple):
    """The entry of a name."""

    number: int
    """Certificates of the name up to this issue number are refused."""
    until: int
    """Unix time at which the last of them has expired by itself and the entry may be forgotten."""
    serials: tuple[str, ...] = ()
    """The serials of those that had not expired, in hex: etcd knows certificates by serial only."""


@dataclass(frozen=True)
class Revocations:
    """The list, with its version."""

    version: int = 0
    names: dict[str, Revoked] = field(default_factory=dict)

    def covers(self, name: str, number: int) -> bool:
        """Whether the certificate with this name and issue number is revoked."""
        return name in self.names and number <= self.names[name].number

    def with_name(self, name: str, entry: Revoked, now: int) -> "Revocations":
        """Return the next version of the list, with this entry and without those that may be forgotten."""
        needed = {other: old for other, old in self.names.items() if old.until > now}
        return Revocations(self.version + 1, {**needed, name: entry})

    def payload(self) -> bytes:
        names = {name: list(entry) for name, entry in sorted(self.names.items())}
        return json.dumps({"version": self.version, "names": names}, separators=(",", ":")).encode()


EMPTY = Revocations()


def sign_revocations(revocations: Revocations, key: Ed25519PrivateKey) -> bytes:
    """Return the list with the signature of the CA's key."""
    payload = revocations.payload()
    return b64encode(key.sign(CONTEXT + payload)) + b"\n" + payload


def verify_revocations(signed: bytes, ca: x509.Certificate) -> Revocations:
    """Return the list if the cluster's CA signed it, else raise BadRecords."""
    signature, _, payload = signed[:MAX_BYTES].partition(b"\n")
    key = ca.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise BadRecords("the cluster's CA has no ed25519 key")
    try:
        key.verify(b64decode(signature, validate=True), CONTEXT + payload)
    except (InvalidSignature, Base64Error) as problem:
        raise BadRecords("a revocation list without the CA's signature was refused") from problem
    content = json.loads(payload)
    return Revocations(content["version"], {name: read_entry(entry) for name, entry in content["names"].items()})


def read_entry(entry: list[Any]) -> Revoked:
    number, until, *serials = entry
    return Revoked(int(number), int(until), tuple(map(str, serials[0])) if serials else ())


class RevocationFile:
    """The file with the newest list that this member has seen.

    It is never replaced by an older one, over restarts too.
    """

    def __init__(self, path: Path, ca: x509.Certificate) -> None:
        self.path, self.ca = path, ca
        self.signed = path.read_bytes() if path.exists() else b""
        self.current = verify_revocations(self.signed, ca) if self.signed else EMPTY

    def take(self, signed: bytes) -> bool:
        """Keep a list if it is newer than ours; return whether it was."""
        newer = verify_revocations(signed, self.ca)
        if newer.version <= self.current.version:
            return False
        write_private_file(self.path, signed)
        self.signed, self.current = signed, newer
        return True


def revocation_list(serials: list[str], key: Ed25519PrivateKey) -> bytes:
    """Return these serials as an X.509 revocation list, for programs that know no other kind."""
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rackwright mesh revocations")])
    builder = x509.CertificateRevocationListBuilder().issuer_name(name)
    builder = builder.last_update(now).next_update(now + timedelta(days=3650))
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(int(serial, 16)).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, None).public_bytes(Encoding.DER)
