"""The messages between members, and their wire format: encoding to bytes and strict decoding.

What a message means to its receiver is not here. Every length is bounded before it is believed, every byte must be
used, and a message has exactly one encoding, so all that is accepted encodes to the same bytes again. Anything else
raises `BadMessage`.
"""

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from rackwright.mesh.membership.member import (
    MAX_INCARNATION,
    MAX_LABELS,
    MAX_SESSION,
    BadRecord,
    MemberRecord,
    State,
    check_name,
)
from rackwright.mesh.membership.wire import BadMessage, Reader, encode_blob, encode_text

VERSION = 1
MAX_MESSAGE = 64 * 1024
MAX_UPDATES = 255
MAX_SYNC_ENTRIES = 1024
SYNC_BUCKETS = 64
MAX_NONCE = 2**63 - 1

_U64 = struct.Struct("!Q")
_HEAD = struct.Struct("!BBQQ")  # version, kind, session, sequence
_DIGESTS = struct.Struct(f"!{SYNC_BUCKETS}Q")


class Kind(enum.IntEnum):
    """The kind of a message. A wire enum: only append, never renumber."""

    PING = 1
    PING_REQUEST = 2
    ACK = 3
    NACK = 4
    GOSSIP = 5
    SYNC_DIGEST = 6
    SYNC_STATE = 7
    DIAL_REQUEST = 8
    DIAL_REPORT = 9


class ProbeVerdict(enum.IntEnum):
    """The result of dialling a member. A wire enum: only append, never renumber."""

    REFUSED = 1
    CONNECTED = 2
    TIMEOUT = 3


@dataclass(frozen=True, slots=True)
class Alive:
    """An update: a member lives, and this is its record."""

    record: MemberRecord
    wire: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wire", bytes([State.ALIVE]) + encode_record(self.record))

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def incarnation(self) -> int:
        return self.record.incarnation


@dataclass(frozen=True, slots=True)
class Suspect:
    """An update: `accuser` had no answer from a member."""

    name: str
    incarnation: int
    accuser: str
    wire: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wire", _accusation(State.SUSPECT, self.name, self.incarnation, self.accuser))


@dataclass(frozen=True, slots=True)
class Dead:
    """An update: a member is dead or, if it is itself the `accuser`, has left."""

    name: str
    incarnation: int
    accuser: str
    wire: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        state = State.LEFT if self.accuser == self.name else State.DEAD
        object.__setattr__(self, "wire", _accusation(state, self.name, self.incarnation, self.accuser))

    @property
    def left(self) -> bool:
        return self.accuser == self.name


Update = Alive | Suspect | Dead


@dataclass(frozen=True, slots=True)
class Ping:
    """A request to answer with an Ack of the same nonce."""

    nonce: int


@dataclass(frozen=True, slots=True)
class PingRequest:
    """A request to ping `target` for the sender: answer Ack when it answers, Nack when it does not."""

    nonce: int
    target: str


@dataclass(frozen=True, slots=True)
class Ack:
    nonce: int


@dataclass(frozen=True, slots=True)
class Nack:
    nonce: int


@dataclass(frozen=True, slots=True)
class Gossip:
    """A message that carries nothing but updates."""


@dataclass(frozen=True, slots=True)
class SyncDigest:
    """The digest of each bucket of the sender's member table.

    The receiver answers with its own entries in the buckets that differ.
    """

    digests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SyncState:
    """A page of the sender's member table.

    `buckets` says, bit by bit, which buckets it is from; `answer` asks for the receiver's entries in the same buckets.
    """

    buckets: int
    answer: bool
    entries: tuple[tuple[State, MemberRecord], ...]


@dataclass(frozen=True, slots=True)
class DialRequest:
    """A request to connect to `target`, at the address the receiver knows it by, and to report the result."""

    nonce: int
    target: str


@dataclass(frozen=True, slots=True)
class DialReport:
    """The answer to a DialRequest."""

    nonce: int
    verdict: ProbeVerdict


Body = Ping | PingRequest | Ack | Nack | Gossip | SyncDigest | SyncState | DialRequest | DialReport


@dataclass(frozen=True, slots=True)
class Message:
    """A body and the updates it carries along.

    `session` and `sequence` are the sender's, and make a replay recognisable.
    """

    sender: str
    session: int
    sequence: int
    body: Body
    updates: tuple[Update, ...] = ()


def encode(message: Message) -> bytes:
    body = message.body
    kind, writer = _WRITERS[type(body)]
    if len(message.updates) > MAX_UPDATES:
        raise BadMessage(f"{len(message.updates)} updates in one message, at most {MAX_UPDATES} travel")
    parts = [
        _HEAD.pack(VERSION, kind, message.session, message.sequence),
        encode_text(message.sender),
        writer(body),
        bytes([len(message.updates)]),
        *(update.wire for update in message.updates),
    ]
    encoded = b"".join(parts)
    if len(encoded) > MAX_MESSAGE:
        raise BadMessage(f"a message of {len(encoded)} bytes, at most {MAX_MESSAGE} travel")
    return encoded


def encoded_size(message: Message) -> int:
    """Return the length of what `encode` would return, without encoding: the simulator counts millions of messages."""
    _, writer = _WRITERS[type(message.body)]
    size = _HEAD.size + 2 + len(message.sender) + len(writer(message.body))
    for update in message.updates:
        size += len(update.wire)
    return size


def decode(encoded: bytes) -> Message:
    """Return the message in these bytes, or raise BadMessage."""
    if len(encoded) > MAX_MESSAGE:
        raise BadMessage(f"a message of {len(encoded)} bytes, at most {MAX_MESSAGE} are read")
    reader = Reader(encoded)
    if (version := reader.u8()) != VERSION:
        raise BadMessage(f"wire version {version}, this member speaks {VERSION}")
    kind = reader.u8()
    if kind not in _READERS:
        raise BadMessage(f"unknown kind of message {kind}")
    try:
        session = reader.u64(MAX_SESSION)
        sequence = reader.u64(MAX_NONCE)
        sender = _read_name(reader)
        body = _READERS[Kind(kind)](reader)
        updates = tuple(_read_update(reader) for _ in range(reader.u8()))
    except BadRecord as error:
        raise BadMessage(str(error)) from error
    reader.end()
    return Message(sender, session, sequence, body, updates)


def encode_record(record: MemberRecord) -> bytes:
    parts = [
        encode_text(record.name),
        encode_text(record.address, wide=True),
        _U64.pack(record.incarnation),
        _U64.pack(record.session),
    ]
    parts.append(bytes([len(record.labels)]))
    for key, value in record.labels:
        parts += [encode_text(key), encode_text(value)]
    parts.append(encode_blob(record.metadata))
    return b"".join(parts)


def read_record(reader: Reader) -> MemberRecord:
    name, address = reader.text(), reader.text(wide=True)
    incarnation, session = reader.u64(MAX_INCARNATION), reader.u64(MAX_SESSION)
    count = reader.u8()
    if count > MAX_LABELS:
        raise BadMessage(f"{count} labels in a record, at most {MAX_LABELS} are read")
    labels = tuple((reader.text(), reader.text()) for _ in range(count))
    return MemberRecord(name, address, incarnation, session, labels, reader.blob())


def _accusation(state: State, name: str, incarnation: int, accuser: str) -> bytes:
    """Encode an accusation. A member that leaves accuses itself; its name is then written once, so that LEFT has one
    encoding."""
    head = bytes([state]) + encode_text(name) + _U64.pack(incarnation)
    return head if state is State.LEFT else head + encode_text(accuser)


def _read_update(reader: Reader) -> Update:
    state = reader.u8()
    if state == State.ALIVE:
        return Alive(read_record(reader))
    if state not in (State.SUSPECT, State.DEAD, State.LEFT):
        raise BadMessage(f"unknown kind of update {state}")
    name, incarnation = _read_name(reader), reader.u64(MAX_INCARNATION)
    if state == State.LEFT:
        return Dead(name, incarnation, name)
    accuser = _read_name(reader)
    if accuser == name:
        raise BadMessage(f"{name} accuses itself")
    return Suspect(name, incarnation, accuser) if state == State.SUSPECT else Dead(name, incarnation, accuser)


def _read_name(reader: Reader) -> str:
    name = reader.text()
    check_name(name)
    return name


def _write_nonce(body: Ping | Ack | Nack) -> bytes:
    return _U64.pack(body.nonce)


def _write_request(body: PingRequest | DialRequest) -> bytes:
    return _U64.pack(body.nonce) + encode_text(body.target)


def _write_nothing(body: Gossip) -> bytes:
    return b""


def _write_digest(body: SyncDigest) -> bytes:
    return _DIGESTS.pack(*body.digests)


def _write_state(body: SyncState) -> bytes:
    if len(body.entries) > MAX_SYNC_ENTRIES:
        raise BadMessage(
            f"{len(body.entries)} entries in a page of the member table, at most {MAX_SYNC_ENTRIES} travel"
        )
    head = struct.pack("!Q?H", body.buckets, body.answer, len(body.entries))
    return head + b"".join(bytes([state]) + encode_record(record) for state, record in body.entries)


def _write_report(body: DialReport) -> bytes:
    return _U64.pack(body.nonce) + bytes([body.verdict])


def _read_digest(reader: Reader) -> SyncDigest:
    return SyncDigest(tuple(reader.u64() for _ in range(SYNC_BUCKETS)))


def _read_state(reader: Reader) -> SyncState:
    buckets, answer, count = reader.u64(), reader.u8(), reader.u16()
    if answer > 1:
        raise BadMessage(f"a flag of {answer}")
    if count > MAX_SYNC_ENTRIES:
        raise BadMessage(f"{count} entries in a page of the member table, at most {MAX_SYNC_ENTRIES} are read")
    return SyncState(buckets, bool(answer), tuple(_read_entry(reader) for _ in range(count)))


def _read_entry(reader: Reader) -> tuple[State, MemberRecord]:
    state = reader.u8()
    if state not in State.__members__.values():
        raise BadMessage(f"unknown state {state}")
    return State(state), read_record(reader)


def _read_report(reader: Reader) -> DialReport:
    nonce, verdict = reader.u64(MAX_NONCE), reader.u8()
    if verdict not in ProbeVerdict.__members__.values():
        raise BadMessage(f"unknown verdict {verdict}")
    return DialReport(nonce, ProbeVerdict(verdict))


# A writer takes exactly the body type of its row, which the type of the table cannot express.
_WRITERS: dict[type, tuple[Kind, Callable[..., bytes]]] = {
    Ping: (Kind.PING, _write_nonce),
    PingRequest: (Kind.PING_REQUEST, _write_request),
    Ack: (Kind.ACK, _write_nonce),
    Nack: (Kind.NACK, _write_nonce),
    Gossip: (Kind.GOSSIP, _write_nothing),
    SyncDigest: (Kind.SYNC_DIGEST, _write_digest),
    SyncState: (Kind.SYNC_STATE, _write_state),
    DialRequest: (Kind.DIAL_REQUEST, _write_request),
    DialReport: (Kind.DIAL_REPORT, _write_report),
}

_READERS: dict[Kind, Callable[[Reader], Body]] = {
    Kind.PING: lambda reader: Ping(reader.u64(MAX_NONCE)),
    Kind.PING_REQUEST: lambda reader: PingRequest(reader.u64(MAX_NONCE), _read_name(reader)),
    Kind.ACK: lambda reader: Ack(reader.u64(MAX_NONCE)),
    Kind.NACK: lambda reader: Nack(reader.u64(MAX_NONCE)),
    Kind.GOSSIP: lambda reader: Gossip(),
    Kind.SYNC_DIGEST: _read_digest,
    Kind.SYNC_STATE: _read_state,
    Kind.DIAL_REQUEST: lambda reader: DialRequest(reader.u64(MAX_NONCE), _read_name(reader)),
    Kind.DIAL_REPORT: _read_report,
}
