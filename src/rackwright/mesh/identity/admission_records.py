"""The cluster's records about admission: invites, tokens, certificates given out, and revocations.

`Records` is the interface; `FileRecords` keeps them in one file, signed with the CA's key, on the server that holds the
CA. A replicated datastore can stand behind the same interface. No secret is kept here, and no rule: those are in
`authority.py` and `mesh/joining/admission.py`.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.mesh.errors import BadRecords
from rackwright.mesh.identity.revocation import EMPTY, Revocations, Revoked, read_entry
from rackwright.private_files import write_private_file

CONTEXT = b"rackwright records 1\n"


@dataclass(frozen=True)
class Invite:
    """An invite: the only address that is dialled for a name, and the host key that must be shown there."""

    name: str
    address: str
    host_key: str
    expires: int
    port: int = 22
    user: str = "root"
    folder: str = "/var/lib/rackwright/mesh"


@dataclass(frozen=True)
class Token:
    """A one-time token by its public part. `used_by` is the digest of the key it was used for."""

    id: str
    name: str
    expires: int
    used_by: str | None = None
    address: str = ""
    """The IP address that the token was made for; empty for the one that its user comes from."""


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate that was given out."""

    name: str
    number: int
    key: str
    expires: int
    address: str = ""
    """The IP address in the certificate; empty for none."""
    serial: str = ""


class Records(Protocol):
    """The records. Every method is one atomic step, and is durable when it returns."""

    async def add_invite(self, invite: Invite) -> None: ...
    async def invites(self) -> list[Invite]: ...
    async def drop_invite(self, name: str) -> None: ...
    async def add_token(self, token: Token) -> None: ...
    async def token(self, id: str) -> Token | None: ...
    async def claim_token(self, id: str, key: str, now: int) -> Token | None:
        """Return the token, now used by this key; None if there is none, it is too old or another key has used it."""

    async def next_number(self) -> int: ...
    async def add_certificate(self, issued: IssuedCertificate, now: int) -> None: ...
    async def certificates(self) -> list[IssuedCertificate]: ...
    async def revocations(self) -> Revocations: ...
    async def revoke(self, name: str, now: int) -> Revocations:
        """Revoke every certificate the name was ever given, and its invites and tokens."""


@dataclass
class _Content:
    """The content of the file."""

    number: int = 0
    invites: dict[str, Invite] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    certificates: list[IssuedCertificate] = field(default_factory=list)
    revocations: Revocations = EMPTY

    def copy(self) -> "_Content":
        return _Content(self.number, dict(self.invites), dict(self.tokens), list(self.certificates), self.revocations)


Result = TypeVar("Result")


class FileRecords:
    """Records in one signed file. It has one writer: the agent that holds the CA."""

    def __init__(self, path: Path, key: Ed25519PrivateKey) -> None:
        self.path, self.key = path, key
        self._lock = asyncio.Lock()
        self._content = self._load()

    async def add_invite(self, invite: Invite) -> None:
        await self._change(lambda content: content.invites.update({invite.name: invite}))

    async def invites(self) -> list[Invite]:
        return list(self._content.invites.values())

    async def drop_invite(self, name: str) -> None:
        await self._change(lambda content: content.invites.pop(name, None))

    async def add_token(self, token: Token) -> None:
        await self._change(lambda content: content.tokens.update({token.id: token}))

    async def token(self, id: str) -> Token | None:
        return self._content.tokens.get(id)

    async def claim_token(self, id: str, key: str, now: int) -> Token | None:
        def claim(content: _Content) -> Token | None:
            content.tokens = {token.id: token for token in content.tokens.values() if token.expires > now}
            token = content.tokens.get(id)
            if token is None or token.used_by not in (None, key):
                return None
            content.tokens[id] = replace(token, used_by=key)
            return content.tokens[id]

        return await self._change(claim)

    async def next_number(self) -> int:
        def count(content: _Content) -> int:
            content.number += 1
            return content.number

        return await self._change(count)

    async def add_certificate(self, issued: IssuedCertificate, now: int) -> None:
        def add(content: _Content) -> None:
            unexpired = [certificate for certificate in content.certificates if certificate.expires > now]
            content.certificates = [*unexpired, issued]

        await self._change(add)

    async def certificates(self) -> list[IssuedCertificate]:
        return list(self._content.certificates)

    async def revocations(self) -> Revocations:
        return self._content.revocations

    async def revoke(self, name: str, now: int) -> Revocations:
        def revoke(content: _Content) -> Revocations:
            certificates = [issued for issued in content.certificates if issued.name == name]
            until = max((issued.expires for issued in certificates), default=now) + 86_400
            # Up to the newest number of all, so that one being signed this moment is caught as well.
            serials = tuple(issued.serial for issued in certificates if issued.serial)
            content.revocations = content.revocations.with_name(name, Revoked(content.number, until, serials), now)
            content.certificates = [issued for issued in content.certificates if issued.name != name]
            content.invites.pop(name, None)
            content.tokens = {token.id: token for token in content.tokens.values() if token.name != name}
            return content.revocations

        return await self._change(revoke)

    async def _change(self, change: Callable[[_Content], Result]) -> Result:
        """Change a copy of the content, write it, and only then make it visible."""
        async with self._lock:
            changed = self._content.copy()
            result = change(changed)
            await asyncio.to_thread(self._save, changed)
            self._content = changed
            return result

    def _save(self, content: _Content) -> None:
        payload = json.dumps(
            {
                "number": content.number,
                "invites": [asdict(invite) for invite in content.invites.values()],
                "tokens": [asdict(token) for token in content.tokens.values()],
                "certificates": [asdict(issued) for issued in content.certificates],
                "revocations": json.loads(content.revocations.payload()),
            }
        ).encode()
        write_private_file(self.path, b64encode(self.key.sign(CONTEXT + payload)) + b"\n" + payload)

    def _load(self) -> _Content:
        if not self.path.exists():
            return _Content()
        signature, _, payload = self.path.read_bytes().partition(b"\n")
        try:
            self.key.public_key().verify(b64decode(signature, validate=True), CONTEXT + payload)
        except (InvalidSignature, ValueError) as problem:
            raise BadRecords(
                f"{self.path} does not carry the CA's signature: other hands changed it; put back a copy that does"
            ) from problem
        return _read_content(json.loads(payload))


def _read_content(content: dict[str, Any]) -> _Content:
    names = content["revocations"]["names"]
    return _Content(
        content["number"],
        {entry["name"]: Invite(**entry) for entry in content["invites"]},
        {entry["id"]: Token(**entry) for entry in content["tokens"]},
        [IssuedCertificate(**entry) for entry in content["certificates"]],
        Revocations(content["revocations"]["version"], {name: read_entry(entry) for name, entry in names.items()}),
    )
