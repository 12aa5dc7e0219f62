"""A new certificate before the old one ends: from our own CA, or asked of a member that holds it."""

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.mesh.address import parse_address
from rackwright.mesh.errors import MeshError, NoAuthority
from rackwright.mesh.identity.server_identity import Identity, check_issued, name_of, read_certificate, request_for
from rackwright.mesh.transport import http

if TYPE_CHECKING:
    from rackwright.mesh.agent.agent import Agent


async def renewed(agent: "Agent", key: Ed25519PrivateKey) -> Identity:
    """An identity with a new key and certificate of the same name."""
    if agent.authority:
        # The founder says its own address; every other one keeps what it was admitted with.
        host = agent.settings.advertise.host
        return Identity(key, await agent.authority.issue(agent.name, key.public_key(), host), agent.identity.ca)
    problems: list[str] = []
    for record in agent.desk.authorities():
        try:
            return await _ask(agent, record.name, record.address, key)
        except MeshError as problem:
            problems.append(f"{record.name}: {problem}")
    raise NoAuthority("; ".join(problems) or "no member that holds the CA is alive; bring one back before the end")


async def _ask(agent: "Agent", server: str, address: str, key: Ed25519PrivateKey) -> Identity:
    wish = {"csr": request_for(agent.name, key).decode()}
    answer = await http.call(parse_address(address), agent.contexts.client, "POST", http.RENEW, wish, server)
    certificate = answer.content.get("certificate")
    if answer.status != 200 or not isinstance(certificate, str):
        raise NoAuthority(f"answered {answer.status}: {answer.content.get('message')}")
    fresh = read_certificate(certificate.encode())
    check_issued(fresh, agent.identity.ca, key.public_key())
    if name_of(fresh) != agent.name:
        raise NoAuthority("answered with a certificate for another name")
    return Identity(key, fresh, agent.identity.ca)
