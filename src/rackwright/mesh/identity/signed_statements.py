"""Statements of members in the datastore: signed with the member's key, and bound to their key in the datastore.

Every member may write everything there, so the mere presence of a value proves nothing. A statement counts only if it
carries a certificate of the cluster's CA that was valid when it was made and has not been revoked, and the signature of
that certificate's key over the statement, its time and its location, which is its datastore key. The location names the
run, the server and the number: a statement from elsewhere cannot be replayed here.
"""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from rackwright.mesh.errors import BadIdentity, MeshError
from rackwright.mesh.identity.server_identity import Identity, name_of, number_of

MARK = b"\x02"
"""The first byte of a statement. No JSON begins with it, and no packed events."""
CONTEXT = b"rackwright statement 1\n"
MAX_PROOF = 8 * 1024
MAX_KNOWN = 1024


class BadStatement(MeshError):
    """A statement in the datastore is not signed by the server that it is said to be of"""

    code = "bad_statement"


@dataclass(frozen=True)
class Signer:
    """The member that signed, as its certificate shows it."""

    name: str
    number: int
    key: Ed25519PublicKey
    begins: datetime
    ends: datetime


def never_revoked(name: str, number: int) -> bool:
    return False


class Statements:
    """Signs statements of one member, and verifies statements of others."""

    def __init__(self, identity: Callable[[], Identity], revoked: Callable[[str, int], bool] = never_revoked) -> None:
        """`identity` returns the current identity, since it is renewed; `revoked` is asked by a certificate's name and
        number."""
        self._identity, self._revoked = identity, revoked
        self._known: dict[bytes, Signer] = {}

    # Signing

    def prove(self, location: str, content: bytes) -> str:
        """Return the proof that this member makes a statement at this location now."""
        identity = self._identity()
        at = int(time.time())
        certificate = identity.certificate.public_bytes(Encoding.DER)
        signature = identity.key.sign(_signed_bytes(location, at, content))
        return json.dumps(
            {"at": at, "certificate": b64encode(certificate).decode(), "signature": b64encode(signature).decode()}
        )

    def sign(self, location: str, content: bytes) -> bytes:
        """Return the content with its proof, as one value."""
        return MARK + self.prove(location, content).encode() + b"\n" + content

    # Verifying

    def read(self, location: str, value: bytes, since: float = 0.0) -> tuple[str, bytes]:
        """Return the signer and the content of a value; BadStatement unless it is signed, and for this location."""
        proof, _, content = value.removeprefix(MARK).partition(b"\n")
        if not value.startswith(MARK):
            raise BadStatement(f"{location[:200]} is not signed by anybody")
        return self.check(location, proof.decode(errors="replace"), content, since), content

    def check(self, location: str, proof: str, content: bytes, since: float = 0.0) -> str:
        """Return the signer of a proof; BadStatement if it does not hold, or if it was made before `since`."""
        if len(proof) > MAX_PROOF:
            raise BadStatement(f"the proof of {location[:200]} is too long")
        try:
            fields = json.loads(proof)
            at = int(fields["at"])
            signer = self._signer(b64decode(fields["certificate"], validate=True))
            signer.key.verify(b64decode(fields["signature"], validate=True), _signed_bytes(location, at, content))
            signed_at = datetime.fromtimestamp(at, UTC)
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, OSError) as problem:
            raise BadStatement(f"the proof of {location[:200]} cannot be read") from problem
        except (InvalidSignature, BadIdentity) as problem:
            raise BadStatement(f"{location[:200]} does not carry the signature of a member for this place") from problem
        if not signer.begins <= signed_at < signer.ends or at < since:
            raise BadStatement(f"{signer.name} had signed {location[:200]} at another time than it could have")
        if self._revoked(signer.name, signer.number):
            raise BadStatement(f"{signer.name}, which has signed {location[:200]}, has been removed from the cluster")
        return signer.name

    def _signer(self, certificate: bytes) -> Signer:
        signer = self._known.get(certificate)
        if signer is None:
            signer = _read_signer(certificate, self._identity().ca)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[certificate] = signer
        return signer


def _read_signer(certificate: bytes, ca: x509.Certificate) -> Signer:
    parsed = x509.load_der_x509_certificate(certificate)
    parsed.verify_directly_issued_by(ca)
    key = parsed.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise BadIdentity("the certificate has no ed25519 key")
    number = number_of(parsed.serial_number)
    return Signer(name_of(parsed), number, key, parsed.not_valid_before_utc, parsed.not_valid_after_utc)


def _signed_bytes(location: str, at: int, content: bytes) -> bytes:
    return CONTEXT + f"{location}\n{at}\n".encode(errors="surrogateescape") + content
