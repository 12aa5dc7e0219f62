"""Joining a cluster: make a key, pin the CA by its fingerprint, send a request to a member, and take the certificate.

The certificate comes in the answer, or is placed here over SSH. Nothing is kept that does not fit the pinned CA and the
joiner's own key. The members' side is `admission.py`.
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
    make_signing_request,
    name_of,
    new_key,
    public_pem,
    read_certificate,
    read_pinned_ca,
)
from rackwright.mesh.joining import handover
from rackwright.mesh.joining.admission import TOKEN_PREFIX
from rackwright.mesh.transport import http
from rackwright.mesh.transport.tls import joiner_context
from rackwright.private_files import write_private_file

KEY = "join.key"


class JoinRefused(MeshError):
    """The cluster refused"""

    code = "refused"


@dataclass(frozen=True)
class OneTimeToken:
    """A token as the joiner reads it."""

    name: str
    address: Address
    ca: str
    id: str
    secret: bytes
    joiner: str = ""
    """The IP address that the joiner is to have; empty for the one that it comes from."""


@dataclass(frozen=True)
class JoinOptions:
    """What a person tells a joiner: the member to ask, the CA to expect there, and the joiner's own name and
    addresses."""

    name: str
    member: Address
    ca: str
    bind: Address | None = None
    advertise: Address | None = None
    token: OneTimeToken | None = None


def read_token(text: str) -> OneTimeToken:
    """Return the token in a text, or raise BadToken."""
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


async def join(folder: Path, options: JoinOptions) -> Identity:
    """Become a member. May be called again after a failure: the key is kept until its certificate has come."""
    key = _own_key(folder)
    ca_pem = await _fetch_ca(options.member)
    ca = read_pinned_ca(ca_pem, options.ca)
    advertise = options.advertise or Address(_own_address(options), (options.bind or options.member).port)
    content: dict[str, Any] = {"csr": make_signing_request(options.name, key).decode(), "address": advertise.host}
    if options.token:
        content["token"] = options.token.id
        content["proof"] = token_proof(options.token.secret, key.public_key(), options.ca, advertise.host)
    context = joiner_context(certificate_pem(ca).decode())
    response = await http.call(options.member, context, "POST", http.JOIN, content)
    if response.status != 200:
        raise JoinRefused(f"{options.member} refused: {response.content.get('message', f'status {response.status}')}")
    certificate = read_certificate(_certificate_pem(folder, response.content))
    check_issued(certificate, ca, key.public_key())
    if name_of(certificate) != options.name:
        raise BadIdentity(f"the certificate is for {name_of(certificate)}, not for {options.name}")
    identity = Identity(key, certificate, ca)
    _save(folder, options, advertise, identity, response.content)
    return identity


def _own_key(folder: Path) -> Ed25519PrivateKey:
    """Return the joiner's key, made at the first call, and write its public half for the SSH visit."""
    path = folder / KEY
    if not path.exists():
        write_private_file(path, key_pem(new_key()))
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise BadIdentity(f"{path} is not an ed25519 key; delete it and join again")
    write_private_file(folder / handover.PUBLIC, public_pem(key.public_key()))
    return key


async def _fetch_ca(member: Address) -> bytes:
    # Not verified on purpose: the CA is compared with the fingerprint, and nothing is sent before that.
    response = await http.call(member, joiner_context(None), "GET", http.JOIN, {})
    ca = response.content.get("ca")
    if response.status != 200 or not isinstance(ca, str):
        raise Unreachable(f"{member} is not a member of a mesh: {response.content.get('message', response.status)}")
    return ca.encode()


def _certificate_pem(folder: Path, answer: dict[str, Any]) -> bytes:
    """Return the certificate in the answer, or the one that was placed over SSH."""
    certificate = answer.get("certificate")
    if isinstance(certificate, str):
        return certificate.encode()
    try:
        return (folder / handover.CERTIFICATE).read_bytes()
    except FileNotFoundError as problem:
        raise JoinRefused(
            f"a certificate was placed, but not in {folder}; invite this server with --folder {folder}"
        ) from problem


def _save(folder: Path, options: JoinOptions, advertise: Address, identity: Identity, answer: dict[str, Any]) -> None:
    """Write the settings and the identity, and remove the files that only joining needs."""
    members = [parse_address(seed) for seed in answer.get("seeds", [])[:64] if isinstance(seed, str)]
    seeds = tuple(dict.fromkeys([options.member, *members]))
    agent_settings.save(folder, agent_settings.Settings(options.name, options.bind or advertise, advertise, seeds))
    IdentityFiles(folder).save(identity)
    for name in (KEY, handover.PUBLIC, handover.CERTIFICATE, handover.CA):
        (folder / name).unlink(missing_ok=True)


def _own_address(options: JoinOptions) -> str:
    return options.token.joiner if options.token and options.token.joiner else _address_towards(options.member)


def _address_towards(member: Address) -> str:
    """Return our address from which a member is reached. Connecting a datagram socket sends nothing."""
    family = socket.AF_INET6 if ":" in member.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((member.host, member.port))
        return str(probe.getsockname()[0])
