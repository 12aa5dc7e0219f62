"""A visit to an invited server over SSH: compares the key there with the requested one, and places the certificate.

It goes to the invited address only, and accepts the invited host key only: the network is not trusted, an SSH
connection to a known host key is. Whether to visit at all is decided in `admission.py`. Import this late: the library
it uses takes half a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import cast

import asyncssh

from rackwright.mesh.errors import HostKeyDiffers, KeyDiffers, Unreachable
from rackwright.mesh.identity.admission_records import Invite
from rackwright.mesh.joining.handover import CA, CERTIFICATE, PUBLIC

CONNECT_SECONDS = 10.0
TOTAL_SECONDS = 25.0
MAX_FILE = 4096
# A host shows one of its keys, and the invited fingerprint may be of any of them: each kind is asked for.
HOST_KEY_KINDS: tuple[tuple[str, ...], ...] = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-512", "rsa-sha2-256"),
)


NO_SUCH_KEY = (
    asyncssh.HostKeyNotVerifiable,
    asyncssh.KeyExchangeFailed,
    asyncssh.ConnectionLost,
    ConnectionResetError,
)
"""Errors of a host that has no key of the kind asked for, or not the invited one."""
MakeCertificate = Callable[[], Awaitable[tuple[bytes, bytes]]]
"""Returns the certificate and the CA, as PEM; called once the keys agree."""


class _PinnedHostClient(asyncssh.SSHClient):
    """Accepts one host key only, and remembers the one that was shown."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.shown_key: str | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown_key = key.get_fingerprint("sha256")
        return self.shown_key == self.fingerprint


def _return_client(client: _PinnedHostClient) -> _PinnedHostClient:
    return client


class SshVisit:
    """One visit to an invited server."""

    def __init__(self, invite: Invite, keys: Sequence[Path]) -> None:
        self.invite, self.keys = invite, keys
        self.where = f"{invite.user}@{invite.address} port {invite.port}"

    async def compare_and_place(self, public: bytes, make: MakeCertificate) -> None:
        """Compare the key there with the requested one, and only then have the certificate made and place it there."""
        try:
            async with asyncio.timeout(TOTAL_SECONDS):
                connection = await self._connect()
                async with connection, connection.start_sftp_client() as files:
                    await self._compare(files, public)
                    certificate, ca = await make()
                    await self._place_file(files, CA, ca)
                    await self._place_file(files, CERTIFICATE, certificate)
        except TimeoutError as problem:
            raise Unreachable(f"{self.where} did not answer over SSH in time") from problem
        except (OSError, asyncssh.Error) as problem:
            raise Unreachable(f"{self.where} cannot be used over SSH: {problem}") from problem

    async def _connect(self) -> asyncssh.SSHClientConnection:
        """Connect with each kind of host key in turn, until the invited one is shown."""
        shown_keys: set[str] = set()
        for kinds in HOST_KEY_KINDS:
            client = _PinnedHostClient(self.invite.host_key)
            try:
                return await asyncssh.connect(
                    self.invite.address,
                    self.invite.port,
                    username=self.invite.user,
                    client_factory=partial(_return_client, client),
                    client_keys=[str(key) for key in self.keys],
                    known_hosts=b"",
                    server_host_key_algs=list(kinds),
                    config=None,
                    agent_path=None,
                    connect_timeout=CONNECT_SECONDS,
                    login_timeout=CONNECT_SECONDS,
                )
            except NO_SUCH_KEY:
                # Not the invited key, or a host without a key of this kind, which just hangs up.
                shown_keys |= {client.shown_key} if client.shown_key else set()
            except asyncssh.PermissionDenied as problem:
                raise Unreachable(
                    f"{self.where} does not let the cluster's SSH key in; add the line that rackwright mesh invite"
                    " printed to that user's authorized_keys"
                ) from problem
        if not shown_keys:
            raise Unreachable(f"{self.where} hangs up before it shows an SSH host key; is that an SSH server?")
        raise HostKeyDiffers(
            f"{self.invite.address} shows the SSH host key {' and '.join(sorted(shown_keys))}, not the invited"
            f" {self.invite.host_key}: somebody is in between, or it was installed anew; if so, invite it again"
        )

    async def _compare(self, files: asyncssh.SFTPClient, public: bytes) -> None:
        path = str(PurePosixPath(self.invite.folder) / PUBLIC)
        try:
            async with files.open(path, "rb") as file:
                public_there = cast(bytes, await file.read(MAX_FILE))
        except asyncssh.SFTPNoSuchFile as problem:
            raise KeyDiffers(f"{path} is not on {self.invite.address}: that server did not ask to join") from problem
        if public_there != public:
            raise KeyDiffers(f"the key in {path} on {self.invite.address} is not the one in the request")

    async def _place_file(self, files: asyncssh.SFTPClient, name: str, content: bytes) -> None:
        """Write a file there, under another name first: the joiner must never read half a file."""
        path = str(PurePosixPath(self.invite.folder) / name)
        async with files.open(path + ".new", "wb", asyncssh.SFTPAttrs(permissions=0o600)) as file:
            await file.write(content)
        await files.posix_rename(path + ".new", path)
