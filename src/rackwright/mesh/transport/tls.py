"""TLS contexts of the mesh, and the peer's identity after a handshake: TLS 1.3 only, both sides proven, none resumed.

Sockets are `transport.py`, frames `link.py`.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509

from rackwright.mesh.errors import BadIdentity
from rackwright.mesh.identity.server_identity import IdentityFiles, name_of, number_of


@dataclass(frozen=True)
class Peer:
    """The member on the other side of a connection, as its certificate says."""

    name: str
    number: int
    expires: datetime

    def seconds_left(self) -> float:
        return (self.expires - datetime.now(UTC)).total_seconds()


class Contexts:
    """The TLS contexts of one member, reloaded in place when its certificate is renewed."""

    def __init__(self, files: IdentityFiles) -> None:
        self.server = _new_context(ssl.PROTOCOL_TLS_SERVER)
        # A joiner has no certificate yet and may come without one, to the join endpoint only. One that shows a
        # certificate must show a good one.
        self.server.verify_mode = ssl.CERT_OPTIONAL
        # A resumed session would let a peer in that was revoked meanwhile.
        self.server.num_tickets = 0
        self.client = _new_context(ssl.PROTOCOL_TLS_CLIENT)
        # A seed is known by address only; its name is read from its certificate, which the CA must have signed.
        self.seed = _new_context(ssl.PROTOCOL_TLS_CLIENT)
        self.seed.check_hostname = False
        self.files = files
        for context in self._all():
            context.load_verify_locations(cafile=str(files.ca))
        self.reload()

    def reload(self) -> None:
        """Read the certificate from its file again."""
        for context in self._all():
            context.load_cert_chain(str(self.files.node))

    def _all(self) -> tuple[ssl.SSLContext, ssl.SSLContext, ssl.SSLContext]:
        return self.server, self.client, self.seed


def joiner_context(ca: str | None) -> ssl.SSLContext:
    """Return a context for a joiner, which has no certificate yet.

    Without a CA it serves only to fetch the CA, to compare it with the fingerprint.
    """
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT)
    # A joiner knows the cluster by its CA, not the members by name.
    context.check_hostname = False
    if ca is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=ca)
    return context


def _new_context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    return context


def peer_of(connection: ssl.SSLObject) -> Peer | None:
    """Return the peer's identity; None for one that showed no certificate."""
    der = connection.getpeercert(binary_form=True)
    if der is None:
        return None
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError as problem:
        raise BadIdentity(f"the peer's certificate cannot be read: {problem}") from problem
    return Peer(name_of(certificate), number_of(certificate.serial_number), certificate.not_valid_after_utc)
