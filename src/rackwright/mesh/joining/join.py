"""The joiner's side: make a key, pin the CA by its fingerprint, ask any member, and take what is placed or answered.

Nothing is kept that does not check out against the pinned CA and the joiner's own key. The members' side is
`admission.py`.
"""

import json
import socket
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.mesh import agent_settings
from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.errors import BadIdentity, BadToken, MeshError, Unreachable
from rackwright.mesh.identity.authority import token_proof
from rackwright.mesh.identity.server_identity import (
    Identity,
    IdentityFiles,
    certificate_pem,
    check_issued,
    checked_name,
    key_pem,
    name_of,
    new_key,
    pinned,
    public_pem,
    read_certificate,
    request_for,
)
from rackwright.mesh.joining import handover
from rackwright.mesh.joining.admission import TOKEN_PREFIX
from rackwright.mesh.transport import http
from rackwright.mesh.transport.tls import joiner_context
from rackwright.private_files import write_private_file

KEY = "join.key"


class Refused(MeshError):
    """The cluster refused"""

    code = "refused"


@dataclass(frozen=True)
class OneTimeToken:
    name: str
    address: Address
    ca: str
    id: str
    secret: bytes
    joiner: str = ""
    """The IP address that its user is to have; empty for the one that it comes from."""


@dataclass(frozen=True)
class Wish:
    """What a joiner was told by a person: where to go, whom to expect there, and who it is to be."""

    name: str
    member: Address
    ca: str
    bind: Address | None = None
    advertise: Address | None = None
    token: OneTimeToken | None = None


def read_token(text: str) -> OneTimeToken:
    try:
        if not text.strip().startswith(TOKEN_PREFIX):
            raise ValueError("no token")
        content = json.loads(urlsafe_b64decode(text.strip().removeprefix(TOKEN_PREFIX)))
        return OneTimeToken(
            checked_name(content["name"]),
            parse_address(content["address"]),
            str(content["ca"]),
            str(content["id"]),
            bytes.fromhex(content["secret"]),
            str(content.get("joiner", "")),
        )
    except (ValueError, KeyError, TypeError, MeshError) as problem:
        raise BadToken("this is not a join token; get one on a member with: rackwright mesh token NAME") from problem


async def join(folder: Path, wish: Wish) -> Identity:
    """Become a member. May be called again after a failure: the key is kept until a certificate has come for it."""
    key = _own_key(folder)
    ca_pem = await _fetch_ca(wish.member)
    ca = pinned(ca_pem, wish.ca)
    advertise = wish.advertise or Address(_own_address(wish), (wish.bind or wish.member).port)
    content: dict[str, Any] = {"csr": request_for(wish.name, key).decode(), "address": advertise.host}
    if wish.token:
        content["token"] = wish.token.id
        content["proof"] = token_proof(wish.token.secret, key.public_key(), wish.ca, advertise.host)
    context = joiner_context(certificate_pem(ca).decode())
    answer = await http.call(wish.member, context, "POST", http.JOIN, content)
    if answer.status != 200:
        raise Refused(f"{wish.member} refused: {answer.content.get('message', f'status {answer.status}')}")
    certificate = read_certificate(_certificate(folder, answer.content))
    check_issued(certificate, ca, key.public_key())
    if name_of(certificate) != wish.name:
        raise BadIdentity(f"the certificate is for {name_of(certificate)}, not for {wish.name}")
    identity = Identity(key, certificate, ca)
    _keep(folder, wish, advertise, identity, answer.content)
    return identity


def _own_key(folder: Path) -> Ed25519PrivateKey:
    path = folder / KEY
    if not path.exists():
        write_private_file(path, key_pem(new_key()))
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise BadIdentity(f"{path} is not an ed25519 key; delete it and join again")
    write_private_file(folder / handover.PUBLIC, public_pem(key.public_key()))
    return key


async def _fetch_ca(member: Address) -> bytes:
    # Not verified on purpose: what comes is compared with the fingerprint, and nothing is sent before that.
    answer = await http.call(member, joiner_context(None), "GET", http.JOIN, {})
    ca = answer.content.get("ca")
    if answer.status != 200 or not isinstance(ca, str):
        raise Unreachable(f"{member} is not a member of a mesh: {answer.content.get('message', answer.status)}")
    return ca.encode()


def _certificate(folder: Path, answer: dict[str, Any]) -> bytes:
    answered = answer.get("certificate")
    if isinstance(answered, str):
        return answered.encode()
    try:
        return (folder / handover.CERTIFICATE).read_bytes()
    except FileNotFoundError as problem:
        raise Refused(
            f"a certificate was placed, but not in {folder}; invite this server with --folder {folder}"
        ) from problem


def _keep(folder: Path, wish: Wish, advertise: Address, identity: Identity, answer: dict[str, Any]) -> None:
    known = [parse_address(seed) for seed in answer.get("seeds", [])[:64] if isinstance(seed, str)]
    seeds = tuple(dict.fromkeys([wish.member, *known]))
    agent_settings.save(folder, agent_settings.Settings(wish.name, wish.bind or advertise, advertise, seeds))
    IdentityFiles(folder).save(identity)
    for name in (KEY, handover.PUBLIC, handover.CERTIFICATE, handover.CA):
        (folder / name).unlink(missing_ok=True)


def _own_address(wish: Wish) -> str:
    return wish.token.joiner if wish.token and wish.token.joiner else _address_towards(wish.member)


def _address_towards(member: Address) -> str:
    """The address of ours from which the member is reached. Connecting a datagram socket sends nothing."""
    family = socket.AF_INET6 if ":" in member.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((member.host, member.port))
        return str(probe.getsockname()[0])
