"""Connections to nodes over SSH: one a node, kept while it is used, and only to the host key that is pinned."""

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
from rackwright.reach.parcel import Places

KEEPALIVE_MISSES = 3
HOST_KEY_ALGORITHMS = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
]
"""All but those that are no longer safe."""

KEY_EXCHANGES = "-*group-exchange*,rsa*"
"""All but those in which the node chooses numbers to compute with, in the event loop, before it has proved anything."""

NONSENSE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What asyncssh raises besides its own errors where the other side sends numbers or keys that cannot be."""

RECEIVE_BUFFER = 32 * 1024
"""Bytes that the kernel keeps of what a node sends. All of them are worked off at once, and a node that sends thousands
of tiny packets must not keep the server from other work for long."""

WINDOW = 256 * 1024
"""Bytes that a node may send of a command's output before somebody takes them: what is kept while the log of its run is
full. Larger ones gain nothing on the networks of a rack."""

ANSWER_LIMIT = 64 * 1024
"""Bytes that a node may answer a short question with."""


@dataclass(frozen=True)
class Target:
    """How a node is reached."""

    address: str
    port: int = PORT
    user: str = ROOT
    host_key: str | None = None
    """The pinned key, as in an OpenSSH public key file."""
    first_use: bool = False
    """Whether a key may be pinned that was not known before."""
    local: bool = False
    """The server's own host: no SSH."""
    node: str = "NODE"
    """Its name, for the commands that people are told to type."""
    places: Places = field(default_factory=Places)


class Unreachable(Exception):
    """A node could not be reached, so nothing was started on it."""


class NotTried(Unreachable):
    """Where a node is, nobody knows, or what was said of it must not be believed: nothing was sent anywhere."""


class NotLetIn(Unreachable):
    """Something answers where the node is, but the server is not let in, or must not go in."""


class HostKeyRefused(NotLetIn):
    """A node showed a host key that is not the pinned one."""


class HostKeyChanged(HostKeyRefused):
    """A node showed another host key than the one that is pinned, so something else may answer at its address."""


@dataclass(frozen=True)
class HostKeyWatch:
    """Who is told of host keys: of one seen for the first time, before it is used; and of one that was refused."""

    first_seen: Callable[[int, str], Awaitable[None]]
    differs: Callable[[int, str], Awaitable[None]]


@dataclass
class _Kept:
    to: tuple[str, ...] = ()
    """Whom it reaches."""
    connection: asyncssh.SSHClientConnection | None = None
    users: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None


class Connections:
    """At most one connection a node. `limit` bounds those kept idle; the ones in use are bounded by who uses them.

    Seconds: an `idle` one is closed after that; `deadline` is for connecting and for starting a command; a node that
    does not answer `KEEPALIVE_MISSES` times in a row, asked every `keepalive`, is lost.
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
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

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
        """Start `command` on the node, as root or as the user who logs in. If the kept connection is dead, once more on
        a new one: nothing was started."""
        if as_root and target.user != ROOT:
            command = f"exec sudo -n -- sh -c {shlex.quote(command)}"
        kept = self._kept.setdefault(node_id, _Kept())
        self._kept.move_to_end(node_id)
        kept.users += 1
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        try:
            yield await self._start(kept, node_id, target, command, session)
        finally:
            kept.users -= 1
            self._rest(node_id, kept)

    def drop(self, node_id: int) -> None:
        """Close the node's connection at once, and whatever runs over it."""
        kept = self._kept.pop(node_id, None)
        if kept is not None:
            _close(kept)

    async def close(self) -> None:
        """Close every connection."""
        closing = [kept.connection for kept in self._kept.values() if kept.connection is not None]
        for node_id in list(self._kept):
            self.drop(node_id)
        for connection in closing:
            await connection.wait_closed()

    async def _start(
        self,
        kept: _Kept,
        node_id: int,
        target: Target,
        command: str,
        session: Callable[[], asyncssh.SSHClientSession[bytes]],
    ) -> asyncssh.SSHClientChannel[bytes]:
        async with kept.lock:
            if kept.to != _identity(target, target.host_key) or kept.connection is None or kept.connection.is_closed():
                await self._reconnect(kept, node_id, target)
            else:
                with contextlib.suppress(OSError, TimeoutError, asyncssh.Error):
                    return await self._open(kept, command, session)
                await self._reconnect(kept, node_id, target)
            try:
                return await self._open(kept, command, session)
            except (OSError, TimeoutError, asyncssh.Error) as error:
                raise NotLetIn(
                    f"{_where(target)} let the server in but started no command ({_why(error)})."
                    " Look at its sshd: MaxSessions, ForceCommand, the login shell."
                ) from error

    async def _open(
        self, kept: _Kept, command: str, session: Callable[[], asyncssh.SSHClientSession[bytes]]
    ) -> asyncssh.SSHClientChannel[bytes]:
        assert kept.connection is not None
        try:
            async with asyncio.timeout(self._deadline):
                channel, _ = await kept.connection.create_session(
                    session, command, encoding=None, request_pty=False, window=WINDOW
                )
        except BaseException:
            # Half a session would wait on the node for as long as the connection is kept.
            kept.connection.abort()
            raise
        return channel

    async def _reconnect(self, kept: _Kept, node_id: int, target: Target) -> None:
        _close(kept)
        self._make_room()
        client = _Client(target)
        try:
            async with asyncio.timeout(self._deadline):
                kept.connection = await self._connect(target, client)
        except asyncssh.HostKeyNotVerifiable as error:
            if not client.offered:
                raise Unreachable(f"{_where(target)} shows a host key that is none. Nothing was sent.") from error
            await self._watch.differs(node_id, client.offered)
            kind = HostKeyRefused if target.host_key is None else HostKeyChanged
            raise kind(client.complaint()) from error
        except asyncssh.PermissionDenied as error:
            raise NotLetIn(
                f"{_where(target)} does not let the server in as {target.user}. Put the server's public key (rackwright"
                f" key show) into the authorized keys of that user, or say which user does:"
                f" rackwright attrib set node/{target.node} ssh-user USER"
            ) from error
        except NONSENSE as error:
            raise Unreachable(f"{_where(target)} speaks no proper SSH ({type(error).__name__}: {error}).") from error
        except (OSError, TimeoutError, asyncssh.Error) as error:
            raise Unreachable(
                f"{_where(target)} cannot be reached over SSH ({_why(error)}). Look whether it is up and runs sshd."
            ) from error
        kept.to = _identity(target, client.offered)
        if target.host_key is None:
            await self._pin(kept, node_id, client.offered)

    async def _pin(self, kept: _Kept, node_id: int, offered: str) -> None:
        """Before anything is sent: whoever answers next time must be the one who answered now."""
        try:
            await self._watch.first_seen(node_id, offered)
        except BaseException:
            _close(kept)
            raise

    async def _connect(self, target: Target, client: "_Client") -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            target.address,
            target.port,
            username=target.user,
            client_factory=lambda: client,
            client_keys=[self._key],
            # The keys are judged by the client below, which can say what it saw.
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

    def _rest(self, node_id: int, kept: _Kept) -> None:
        """Keep what nobody uses now for a while."""
        if kept.users:
            return
        if self._kept.get(node_id) is not kept:
            _close(kept)  # dropped while it was used
        elif kept.connection is None or kept.connection.is_closed():
            self.drop(node_id)
        else:
            kept.timer = asyncio.get_running_loop().call_later(self._idle, self.drop, node_id)

    def _make_room(self) -> None:
        idle = [node_id for node_id, kept in self._kept.items() if kept.users == 0]
        for node_id in idle[: max(0, len(self._kept) - self._limit)]:
            self.drop(node_id)


class ShortAnswer(asyncssh.SSHClientSession[bytes]):
    """Collects what a short command prints. A node that prints more than `limit` bytes gave no answer."""

    def __init__(self, limit: int = ANSWER_LIMIT) -> None:
        self.text: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._limit = limit
        self._received = bytearray()
        self._size = 0
        """Of all that came, errors included."""
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


class _Client(asyncssh.SSHClient):
    """Judges the host key."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pinned = None if target.host_key is None else asyncssh.import_public_key(target.host_key)
        self.offered = ""

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        conn.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)

    @property
    def algorithms(self) -> list[str]:
        """The pinned key's first, so that a node with several keys shows that one; and a node without it another."""
        pinned = [] if self._pinned is None else [name.decode() for name in self._pinned.sig_algorithms]
        wanted = [name for name in pinned if name in HOST_KEY_ALGORITHMS]
        return wanted + [name for name in HOST_KEY_ALGORITHMS if name not in wanted]

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key.export_public_key().decode().strip()
        if self._pinned is None:
            return self._target.first_use
        return key.public_data == self._pinned.public_data

    def complaint(self) -> str:
        shown = asyncssh.import_public_key(self.offered).get_fingerprint()
        where = _where(self._target)
        pin = f"rackwright node host-key {self._target.node} --pin {shown}"
        if self._pinned is None:
            return (
                f"{where} shows host key {shown}, and none is known of it. Nothing was sent. Compare that with the"
                f" machine's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub, there), then pin it: {pin}"
            )
        return (
            f"{where} shows host key {shown}, but {self._pinned.get_fingerprint()} is pinned. Nothing was sent. If the"
            f" machine got a new key on purpose, pin that one: {pin}; if not, something else answers at its address."
        )


def _close(kept: _Kept) -> None:
    if kept.timer is not None:
        kept.timer.cancel()
        kept.timer = None
    if kept.connection is not None:
        kept.connection.abort()
        kept.connection = None


def _identity(target: Target, host_key: str | None) -> tuple[str, ...]:
    """Two targets with the same one are the same; the comment after a key says nothing."""
    return (target.address, str(target.port), target.user, *(host_key or "").split()[:2])


def _where(target: Target) -> str:
    return f"The node at {target.address} port {target.port}"


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
