"""A new certificate before the old one ends: from our own CA, or asked of a member that holds it."""

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
    name_of,
    new_key,
    read_certificate,
    request_for,
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
    def __init__(self, ports: RenewalPorts) -> None:
        self._ports, self._identity, self._log = ports, ports.identity, ports.log

    async def run(self) -> None:
        """Renew the certificate whenever that is due, until cancelled."""
        first = self._identity.current
        life = first.expires - first.certificate.not_valid_before_utc
        while True:
            await asyncio.sleep(min(60.0, life.total_seconds() / 30))
            if not self._identity.current.due():
                continue
            try:
                fresh = await self.renewed(new_key())
            except MeshError as problem:
                left = int((self._identity.current.expires - datetime.now(UTC)).total_seconds())
                self._log.error("renewal_failed", why=str(problem), seconds_left=left)
                continue
            # On disk first: what cannot be kept is not used, and is asked for anew.
            self._identity.replace(fresh)
            self._ports.contexts.reload()
            self._ports.metrics.certificate.set(fresh.expires.timestamp())
            self._log.info("renewed", expires=fresh.expires.isoformat())

    async def renewed(self, key: Ed25519PrivateKey) -> Identity:
        """Return an identity with a new key and certificate of the same name."""
        ports = self._ports
        if ports.authority:
            # The founder says its own address; every other one keeps what it was admitted with.
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
        wish = {"csr": request_for(name, key).decode()}
        client = self._ports.contexts.client
        answer = await http.call(parse_address(address), client, "POST", http.RENEW, wish, server)
        certificate = answer.content.get("certificate")
        if answer.status != 200 or not isinstance(certificate, str):
            raise NoAuthority(f"answered {answer.status}: {answer.content.get('message')}")
        fresh = read_certificate(certificate.encode())
        check_issued(fresh, ca, key.public_key())
        if name_of(fresh) != name:
            raise NoAuthority("answered with a certificate for another name")
        return Identity(key, fresh, ca)
