"""The rules of admission, for join requests, renewals and an operator's invites, tokens and removals.

They run on the server that holds the CA. A certificate is signed on the word of an invited SSH host or of a one-time
token, never on the word of the network. Requests come here through `mesh/agent/admission_handler.py`; the signing is in
`mesh/identity/authority.py`.
"""

import asyncio
import hmac
import ipaddress
import json
import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackwright.mesh.errors import AddressDiffers, BadRequest, BadToken, MeshError, NameTaken, NotInvited, TooMany
from rackwright.mesh.identity.admission_records import Invite, Token
from rackwright.mesh.identity.authority import Authority, is_ip, plain_ip, token_proof
from rackwright.mesh.identity.server_identity import (
    certificate_pem,
    checked_name,
    fingerprint,
    key_digest,
    public_pem,
    read_signing_request,
)
from rackwright.mesh.log import Log

HOST_KEY = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
TOKEN_SECONDS = 600
MAX_TOKEN_SECONDS = 3600
INVITE_SECONDS = 86_400
MAX_HOST = 255
TOKEN_PREFIX = "rwj1."  # noqa: S105 - says what follows, and is no secret


class Admission:
    """Admits and removes members of one cluster."""

    def __init__(
        self,
        authority: Authority,
        live: Callable[[], set[str]],
        revoked: Callable[[bytes], None],
        ssh_keys: Sequence[Path],
        log: Log,
    ) -> None:
        self.authority, self.live, self.revoked, self.ssh_keys, self.log = authority, live, revoked, ssh_keys, log
        self._visiting: set[str] = set()

    # Requests of joiners and members

    async def admit(self, request: dict[str, Any], source: str) -> dict[str, Any]:
        """Answer a join request. With a token the answer holds the certificate; else it was placed over SSH.

        `source` is the address from which the joiner connected; empty if another member relayed its request.
        """
        name, key = read_signing_request(_read_text(request, "csr").encode())
        if "token" in request:
            address = _read_text(request, "address")[:MAX_HOST]
            await self._check_token(
                name, key, _read_text(request, "token"), _read_text(request, "proof"), address, source
            )
            return {"certificate": (await self._issue(name, key, address)).decode(), "placed": False}
        await self._visit(name, key)
        return {"certificate": None, "placed": True}

    async def renew(self, member: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a renewal: a new certificate for a member that proved its name with the one it has."""
        name, key = read_signing_request(_read_text(request, "csr").encode())
        if name != member:
            raise NameTaken(f"{member} asked for a certificate in the name of {name}")
        certificate = await self.authority.issue(name, key, await self.authority.address_of(name))
        self.log.info("certificate_renewed", member=name)
        return {"certificate": certificate_pem(certificate).decode()}

    async def _check_token(
        self, name: str, key: Ed25519PublicKey, id: str, proof: str, address: str, source: str
    ) -> None:
        expected = token_proof(self.authority.token_secret(id), key, fingerprint(self.authority.ca), address)
        # The proof first: a joiner that does not have the secret must not be able to use a token up.
        if not hmac.compare_digest(expected.encode(), proof.encode()):
            raise BadToken
        # The address before the token is used up: an honest server that named another address may try again.
        self._check_address(name, await self.authority.records.token(id), address, source)
        token = await self.authority.records.claim_token(id, key_digest(key), int(time.time()))
        if token is None or token.name != name:
            raise BadToken

    @staticmethod
    def _check_address(name: str, token: Token | None, address: str, source: str) -> None:
        """Raise AddressDiffers unless the joiner may have a certificate for its IP address.

        It may if the operator made the token for that address, or if the joiner connected from there.
        """
        if token is None or not is_ip(address):
            return
        allowed = token.address or source
        if not is_ip(allowed) or plain_ip(address) != plain_ip(allowed):
            reason = (
                f"the token was made for {token.address}" if token.address else f"it comes from {source or 'elsewhere'}"
            )
            raise AddressDiffers(
                f"{name} asks for a certificate for {address}, but {reason}; make a token for that address where the CA"
                f" is: rackwright mesh token {name} --address {address}"
            )

    async def _visit(self, name: str, key: Ed25519PublicKey) -> None:
        """Visit an invited server over SSH, and place its certificate there."""
        invite = next((invite for invite in await self.authority.records.invites() if invite.name == name), None)
        if invite is None or invite.expires <= time.time():
            raise NotInvited(
                f"{name} has not been invited, or the invite is too old; on the member that holds the CA:"
                f" rackwright mesh invite {name} ADDRESS --host-key FINGERPRINT"
            )
        if name in self._visiting:
            raise TooMany(f"{name} is being visited already; wait for that to end")
        from rackwright.mesh.joining.ssh_visit import SshVisit

        self._visiting.add(name)
        try:

            async def make() -> tuple[bytes, bytes]:
                return await self._issue(name, key, invite.address), certificate_pem(self.authority.ca)

            await SshVisit(invite, self.ssh_keys).compare_and_place(public_pem(key), make)
        finally:
            self._visiting.discard(name)
        await self.authority.records.drop_invite(name)

    async def _issue(self, name: str, key: Ed25519PublicKey, address: str) -> bytes:
        """Return a new certificate for a name that no living member has."""
        if name in self.live():
            raise NameTaken(f"{name} is alive in this cluster; remove it first with: rackwright mesh remove {name}")
        records = self.authority.records
        certificates = [issued for issued in await records.certificates() if issued.name == name]
        if any(issued.key != key_digest(key) for issued in certificates):
            # The name moves to a new machine: the old one, wherever it is, must not come back under it.
            self.revoked(await self.authority.revoke(name))
        certificate = await self.authority.issue(name, key, address)
        self.log.info("certificate_issued", member=name, serial=f"{certificate.serial_number:x}")
        return certificate_pem(certificate)

    # Requests of the operator

    async def invite(
        self, name: str, address: str, host_key: str, port: int, user: str, folder: str, seconds: int
    ) -> Invite:
        """Invite a server: it may join under this name for so many seconds, from an address with this host key."""
        self._check_free(name)
        if not HOST_KEY.fullmatch(host_key):
            raise BadRequest(
                f"{host_key!r} is not a host key's fingerprint; on that server: ssh-keygen -lf"
                " /etc/ssh/ssh_host_ed25519_key.pub, and take the part beginning with SHA256:"
            )
        try:
            ipaddress.ip_address(address)
        except ValueError as problem:
            # A name would let those who control DNS choose which server is visited.
            raise BadRequest(f"{address!r} is not an IP address; an invite names one") from problem
        if not 0 < port < 65536 or not folder.startswith("/") or not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user):
            raise BadRequest("the SSH port, user or folder cannot be used")
        invite = Invite(name, address, host_key, int(time.time()) + seconds, port, user, folder)
        await self.authority.records.add_invite(invite)
        self.log.info("invited", member=name, address=address, host_key=host_key)
        return invite

    async def token(self, name: str, address: str, seconds: int, joiner: str = "") -> str:
        """Return a one-time token as one word: the member to ask, the CA to expect, and the secret.

        `joiner` is the IP address that its user will have; without, the one that it comes from.
        """
        self._check_free(name)
        if joiner and not is_ip(joiner):
            raise BadRequest(f"{joiner!r} is not an IP address; a token is made for one")
        if not 0 < seconds <= MAX_TOKEN_SECONDS:
            raise BadRequest(f"a token lives for 1 to {MAX_TOKEN_SECONDS // 60} minutes")
        id = secrets.token_hex(8)
        await self.authority.records.add_token(Token(id, name, int(time.time()) + seconds, address=joiner))
        self.log.info("token_made", member=name, seconds=seconds, address=joiner)
        content = {
            "name": name,
            "address": address,
            "ca": fingerprint(self.authority.ca),
            "id": id,
            "secret": self.authority.token_secret(id).hex(),
            "joiner": joiner,
        }
        return TOKEN_PREFIX + urlsafe_b64encode(json.dumps(content).encode()).decode()

    async def remove(self, name: str) -> None:
        """Remove a server from the cluster: revoke its certificates."""
        self.revoked(await self.authority.revoke(checked_name(name)))
        self.log.info("removed", member=name)

    def _check_free(self, name: str) -> None:
        """Raise NameTaken if a living member has this name."""
        if checked_name(name) in self.live():
            raise NameTaken(f"{name} is already alive in this cluster; choose another name")


class RateLimit:
    """Limits how often strangers may ask: so many times a minute, for each source and for all together.

    Bounded in memory.
    """

    def __init__(self, each: int = 60, all: int = 300) -> None:
        self.each, self.all = each, all
        self._begin, self._counts = 0.0, dict[str, int]()

    def check(self, source: str) -> None:
        """Count a request of a source, or raise TooMany."""
        now = asyncio.get_running_loop().time()
        if now - self._begin >= 60:
            self._begin, self._counts = now, {}
        if sum(self._counts.values()) >= self.all or self._counts.get(source, 0) >= self.each:
            raise TooMany
        self._counts[source] = self._counts.get(source, 0) + 1


STATUS = {"not_invited": 403, "bad_token": 403, "host_key_differs": 403, "key_differs": 403, "name_taken": 409}
STATUS |= {"address_differs": 403, "relayed": 403, "too_many": 429, "unreachable": 502, "no_authority": 503}


def http_status(problem: MeshError) -> int:
    """Return the HTTP status of an error."""
    return STATUS.get(problem.code, 400)


def _read_text(request: dict[str, Any], key: str) -> str:
    """Return a field of a request that must be plain text."""
    value = request.get(key)
    if not isinstance(value, str) or not value.isascii():
        raise BadRequest(f"{key} is missing or is not plain text")
    return value
