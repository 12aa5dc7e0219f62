"""Renewal of this server's certificate before it ends: by its own CA, or by a member that holds the CA."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.errors import MeshError, NoAuthority
from rackwright.mesh.identity.authority import Authority
from rackwright.mesh.identity.server_identity import (
    Identity,
    OwnIdentity,
    check_issued,
    make_signing_request,
    name_of,
    new_key,
    read_certificate,
)
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member_view import MemberView, authorities
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.transport import http
from rackwright.mesh.transport.tls import Contexts


@dataclass(frozen=True)
class RenewalPorts:
    """What renewing a certificate uses of its agent."""

    name: str
    advertise: Address
    identity: OwnIdentity
    contexts: Contexts
    authority: Authority | None
    members: MemberView
    metrics: Metrics
    log: Log


class Renewal:
    """Renews the certificate of one server."""

    def __init__(self, ports: RenewalPorts) -> None:
        self._ports, self._identity, self._log = ports, ports.identity, ports.log

    async def run(self) -> None:
        """Renew the certificate whenever that is due, until cancelled."""
        first = self._identity.current
        life = first.expires - first.certificate.not_valid_before_utc
        while True:
            await asyncio.sleep(min(60.0, life.total_seconds() / 30))
            if not self._identity.current.is_renewal_due():
                continue
            try:
                renewed = await self.renew(new_key())
            except MeshError as problem:
                seconds_left = int((self._identity.current.expires - datetime.now(UTC)).total_seconds())
                self._log.error("renewal_failed", why=str(problem), seconds_left=seconds_left)
                continue
            # On disk first: a certificate that cannot be saved is not used, and is asked for anew.
            self._identity.replace(renewed)
            self._ports.contexts.reload()
            self._ports.metrics.certificate.set(renewed.expires.timestamp())
            self._log.info("renewed", expires=renewed.expires.isoformat())

    async def renew(self, key: Ed25519PrivateKey) -> Identity:
        """Return an identity with a new key and certificate of the same name."""
        ports = self._ports
        if ports.authority:
            # The founder names its own address; every other server keeps the one that it was admitted with.
            certificate = await ports.authority.issue(ports.name, key.public_key(), ports.advertise.host)
            return Identity(key, certificate, self._identity.current.ca)
        problems: list[str] = []
        for record in authorities(ports.members):
            try:
                return await self._ask(record.name, record.address, key)
            except MeshError as problem:
                problems.append(f"{record.name}: {problem}")
        raise NoAuthority("; ".join(problems) or "no member that holds the CA is alive; bring one back before the end")

    async def _ask(self, server: str, address: str, key: Ed25519PrivateKey) -> Identity:
        name, ca = self._ports.name, self._identity.current.ca
        request = {"csr": make_signing_request(name, key).decode()}
        client = self._ports.contexts.client
        response = await http.call(parse_address(address), client, "POST", http.RENEW, request, server)
        certificate = response.content.get("certificate")
        if response.status != 200 or not isinstance(certificate, str):
            raise NoAuthority(f"answered {response.status}: {response.content.get('message')}")
        issued = read_certificate(certificate.encode())
        check_issued(issued, ca, key.public_key())
        if name_of(issued) != name:
            raise NoAuthority("answered with a certificate for another name")
        return Identity(key, issued, ca)
