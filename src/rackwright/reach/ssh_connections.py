"""SSH connections to nodes: one a node, pooled while it is used, and only to the host key that is pinned."""

import asyncio
import contextlib
import shlex
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncssh

from rackwright.domain.machines.ssh_login import PORT, ROOT
from rackwright.reach.parcel import NodeFolders

KEEPALIVE_MISSES = 3
HOST_KEY_ALGORITHMS = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]
"""All host key algorithms but those that are no longer safe."""

KEY_EXCHANGES = "-*group-exchange*,rsa*"
"""All key exchanges but those in which the node chooses numbers to compute with, in the event loop, before it has
proved anything."""

MALFORMED_PEER_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that asyncssh raises besides its own where the other side sends impossible numbers or keys."""

RECEIVE_BUFFER = 32 * 1024
"""Bytes that the kernel keeps of what a node sends. All of them are worked off at once, and a node that sends thousands
of tiny packets must not keep the server from other work for long."""

WINDOW = 256 * 1024
"""Bytes of a command's output that a node may send before they are read: so much is held while the log of its run is
full. A larger window gains nothing on the networks of a rack."""

ANSWER_LIMIT = 64 * 1024
"""Bytes that a node may answer a short question with."""


@dataclass(frozen=True)
class Target:
    """How a node is reached: address, user and host key."""

    address: str
    port: int = PORT
    user: str = ROOT
    host_key: str | None = None
    """The pinned key, as in an OpenSSH public key file."""
    first_use: bool = False
    """Whether a key may be pinned that was not known before."""
    local: bool = False
    """Whether the node is the server's own host, which needs no SSH."""
    node: str = "NODE"
    """Its name, for the commands that people are told to type."""
    folders: NodeFolders = field(default_factory=NodeFolders)


class Unreachable(Exception):
    """A node could not be reached, so nothing was started on it."""


class NotTried(Unreachable):
    """The address of a node is not known, or must not be believed: nothing was sent anywhere."""


class NotLetIn(Unreachable):
    """Something answers where the node is, but the server is not let in, or must not go in."""


class HostKeyRefused(NotLetIn):
    """A node showed a host key that is not the pinned one."""


class HostKeyChanged(HostKeyRefused):
    """A node showed another host key than the one that is pinned, so something else may answer at its address."""


@dataclass(frozen=True)
class HostKeyWatch:
    """Callbacks about host keys: for a key seen for the first time, before it is used; and for a key that was refused.

    Both are called with the id of the node and the key.
    """

    first_seen: Callable[[int, str], Awaitable[None]]
    differs: Callable[[int, str], Awaitable[None]]


@dataclass
class _PooledConnection:
    """The connection to one node, with the number of its users and the timer that closes it when idle."""

    identity: tuple[str, ...] = ()
    """The target that the connection was made to, as `_identity` tells it from others."""
    connection: asyncssh.SSHClientConnection | None = None
    users: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None


class Connections:
    """A pool with at most one SSH connection a node.

    `limit` bounds the idle connections; those in use are bounded by their users. Seconds: a connection that is `idle`
    for so long is closed; `deadline` is for connecting and for starting a command; a node that does not answer
    `KEEPALIVE_MISSES` times in a row, asked every `keepalive`, is lost.
    """

    def __init__(
        self,
        key: asyncssh.SSHKey,
        watch: HostKeyWatch,
        *,
        limit: int = 256,
        idle: float = 300.0,
        deadline: float = 20.0,
        keepalive: float = 15.0,
    ) -> None:
        self._key = key
        self._watch = watch
        self._limit = limit
        self._idle = idle
        self._deadline = deadline
        self._keepalive = keepalive
        self._pool: OrderedDict[int, _PooledConnection] = OrderedDict()

    @asynccontextmanager
    async def command(
        self,
        node_id: int,
        target: Target,
        command: str,
        session: Callable[[], asyncssh.SSHClientSession[bytes]],
        *,
        as_root: bool = True,
    ) -> AsyncIterator[asyncssh.SSHClientChannel[bytes]]:
        """Start `command` on the node, as root or as the user who logs in.

        If the pooled connection is dead, start it once more on a new one: nothing was started on the dead one.
        """
        if as_root and target.user != ROOT:
            command = f"exec sudo -n -- sh -c {shlex.quote(command)}"
        pooled = self._pool.setdefault(node_id, _PooledConnection())
        self._pool.move_to_end(node_id)
        pooled.users += 1
        if pooled.timer is not None:
            pooled.timer.cancel()
            pooled.timer = None
        try:
            yield await self._start(pooled, node_id, target, command, session)
        finally:
            pooled.users -= 1
            self._release(node_id, pooled)

    def apart(self, deadline: float) -> "Connections":
        """Return other connections with the same key, which are shared with nobody and record no host key.

        For an address at which a node only may be: another key there says nothing about the node.
        """
        return Connections(
            self._key, HostKeyWatch(_ignore_key, _ignore_key), limit=0, deadline=deadline, keepalive=self._keepalive
        )

    def drop(self, node_id: int) -> None:
        """Close the node's connection at once, with all that runs over it."""
        pooled = self._pool.pop(node_id, None)
        if pooled is not None:
            _close(pooled)

    async def close(self) -> None:
        """Close every connection."""
        closing = [pooled.connection for pooled in self._pool.values() if pooled.connection is not None]
        for node_id in list(self._pool):
            self.drop(node_id)
        for connection in closing:
            await connection.wait_closed()

    async def _start(
        self,
        pooled: _PooledConnection,
        node_id: int,
        target: Target,
        command: str,
        session: Callable[[], asyncssh.SSHClientSession[bytes]],
    ) -> asyncssh.SSHClientChannel[bytes]:
        async with pooled.lock:
            if (
                pooled.identity != _identity(target, target.host_key)
                or pooled.connection is None
                or pooled.connection.is_closed()
            ):
                await self._reconnect(pooled, node_id, target)
            else:
                with contextlib.suppress(OSError, TimeoutError, asyncssh.Error):
                    return await self._open(pooled, command, session)
                await self._reconnect(pooled, node_id, target)
            try:
                return await self._open(pooled, command, session)
            except (OSError, TimeoutError, asyncssh.Error) as error:
                raise NotLetIn(
                    f"{_describe_target(target)} let the server in but started no command ({_describe_error(error)})."
                    " Look at its sshd: MaxSessions, ForceCommand, the login shell."
                ) from error

    async def _open(
        self, pooled: _PooledConnection, command: str, session: Callable[[], asyncssh.SSHClientSession[bytes]]
    ) -> asyncssh.SSHClientChannel[bytes]:
        assert pooled.connection is not None
        try:
            async with asyncio.timeout(self._deadline):
                channel, _ = await pooled.connection.create_session(
                    session, command, encoding=None, request_pty=False, window=WINDOW
                )
        except BaseException:
            # A half-opened session would wait on the node for as long as the connection is open.
            pooled.connection.abort()
            raise
        return channel

    async def _reconnect(self, pooled: _PooledConnection, node_id: int, target: Target) -> None:
        _close(pooled)
        self._make_room()
        client = _HostKeyClient(target)
        node_at = _describe_target(target)
        try:
            async with asyncio.timeout(self._deadline):
                pooled.connection = await self._connect(target, client)
        except asyncssh.HostKeyNotVerifiable as error:
            if not client.offered:
                raise Unreachable(f"{node_at} shows a host key that is none. Nothing was sent.") from error
            await self._watch.differs(node_id, client.offered)
            kind = HostKeyRefused if target.host_key is None else HostKeyChanged
            raise kind(client.complaint()) from error
        except asyncssh.PermissionDenied as error:
            raise NotLetIn(
                f"{node_at} does not let the server in as {target.user}. Put the server's public key (rackwright"
                f" key show) into the authorized keys of that user, or say which user does:"
                f" rackwright attrib set node/{target.node} ssh-user USER"
            ) from error
        except MALFORMED_PEER_ERRORS as error:
            raise Unreachable(f"{node_at} speaks no proper SSH ({type(error).__name__}: {error}).") from error
        except (OSError, TimeoutError, asyncssh.Error) as error:
            raise Unreachable(
                f"{node_at} cannot be reached over SSH ({_describe_error(error)}). Look whether it is up and runs sshd."
            ) from error
        pooled.identity = _identity(target, client.offered)
        if target.host_key is None:
            await self._pin(pooled, node_id, client.offered)

    async def _pin(self, pooled: _PooledConnection, node_id: int, offered: str) -> None:
        """Have the offered host key pinned before anything is sent: next time, the same key must answer."""
        try:
            await self._watch.first_seen(node_id, offered)
        except BaseException:
            _close(pooled)
            raise

    async def _connect(self, target: Target, client: "_HostKeyClient") -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            target.address,
            target.port,
            username=target.user,
            client_factory=lambda: client,
            client_keys=[self._key],
            # Host keys are checked by the client below, which can report the key it saw.
            known_hosts=lambda host, address, port: ([], [], []),
            server_host_key_algs=client.algorithms,
            kex_algs=KEY_EXCHANGES,
            config=None,
            agent_path=None,
            host_based_auth=False,
            password_auth=False,
            kbdint_auth=False,
            gss_auth=False,
            gss_kex=False,
            compression_algs=None,
            keepalive_interval=self._keepalive,
            keepalive_count_max=KEEPALIVE_MISSES,
        )

    def _release(self, node_id: int, pooled: _PooledConnection) -> None:
        """Keep a connection without users open for a while, then close it."""
        if pooled.users:
            return
        if self._pool.get(node_id) is not pooled:
            _close(pooled)  # dropped while it was used
        elif pooled.connection is None or pooled.connection.is_closed():
            self.drop(node_id)
        else:
            pooled.timer = asyncio.get_running_loop().call_later(self._idle, self.drop, node_id)

    def _make_room(self) -> None:
        """Close idle connections beyond the limit, the longest unused first."""
        idle = [node_id for node_id, pooled in self._pool.items() if pooled.users == 0]
        for node_id in idle[: max(0, len(self._pool) - self._limit)]:
            self.drop(node_id)


class ShortAnswer(asyncssh.SSHClientSession[bytes]):
    """The session of a short command, whose output it collects. More than `limit` bytes count as no answer."""

    def __init__(self, limit: int = ANSWER_LIMIT) -> None:
        self.text: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._limit = limit
        self._received = bytearray()
        self._size = 0
        """Bytes received so far, errors included."""
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self.text.done():
            return
        self._size += len(data)
        if self._size > self._limit:
            self.text.set_exception(Unreachable(f"It answered a short question with more than {self._limit} bytes."))
            self._received.clear()
            if self._channel is not None:
                self._channel.abort()
        elif datatype is None:
            self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.text.done():
            self.text.set_result(self._received.decode(errors="replace"))


class _HostKeyClient(asyncssh.SSHClient):
    """The client of one connection, which checks the node's host key and remembers it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pinned = None if target.host_key is None else asyncssh.import_public_key(target.host_key)
        self.offered = ""

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        conn.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)

    @property
    def algorithms(self) -> list[str]:
        """The host key algorithms, the pinned key's first: a node with several keys then shows that one, and a node
        without it shows another."""
        pinned = [] if self._pinned is None else [name.decode() for name in self._pinned.sig_algorithms]
        preferred = [name for name in pinned if name in HOST_KEY_ALGORITHMS]
        return preferred + [name for name in HOST_KEY_ALGORITHMS if name not in preferred]

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key.export_public_key().decode().strip()
        if self._pinned is None:
            return self._target.first_use
        return key.public_data == self._pinned.public_data

    def complaint(self) -> str:
        """Return the message about a host key that was refused."""
        fingerprint = asyncssh.import_public_key(self.offered).get_fingerprint()
        node_at = _describe_target(self._target)
        pin = f"rackwright node host-key {self._target.node} --pin {fingerprint}"
        if self._pinned is None:
            return (
                f"{node_at} shows host key {fingerprint}, and none is known of it. Nothing was sent. Compare that with"
                f" the machine's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub, there), then pin it: {pin}"
            )
        return (
            f"{node_at} shows host key {fingerprint}, but {self._pinned.get_fingerprint()} is pinned. Nothing was sent."
            f" If the machine got a new key on purpose, pin that one: {pin}; if not, something else answers at its"
            " address."
        )


async def _ignore_key(node_id: int, key: str) -> None:
    """Take a host key that nobody is to be told of."""


def _close(pooled: _PooledConnection) -> None:
    if pooled.timer is not None:
        pooled.timer.cancel()
        pooled.timer = None
    if pooled.connection is not None:
        pooled.connection.abort()
        pooled.connection = None


def _identity(target: Target, host_key: str | None) -> tuple[str, ...]:
    """Return what two targets must have in common to share a connection; the comment after a key does not count."""
    return (target.address, str(target.port), target.user, *(host_key or "").split()[:2])


def _describe_target(target: Target) -> str:
    return f"The node at {target.address} port {target.port}"


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
