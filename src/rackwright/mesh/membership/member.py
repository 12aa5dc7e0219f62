"""The record of a member, which it makes of itself, and the state in which others hold it.

Values only. How a state changes is `member_updates.py`; how a record is encoded is `messages.py`. The limits are here
because they are the same for records that this member makes and for those that come from the network.
"""

import enum
import itertools
import re
from dataclasses import dataclass, replace

from rackwright.mesh.address import parse_address
from rackwright.mesh.errors import BadSettings

MAX_NAME = 253
MAX_ADDRESS = 270
MAX_METADATA = 512
MAX_LABELS = 32
MAX_LABEL_TEXT = 63
MAX_INCARNATION = 2**62
MAX_SESSION = 2**56

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9.:_%\[\]-]+:[0-9]{1,5}")
_LABEL_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9._:/@+-]*")


class BadRecord(ValueError):
    """A member record breaks a limit."""


class State(enum.IntEnum):
    """The state in which a member is held. A wire enum: only append, never renumber."""

    ALIVE = 1
    SUSPECT = 2
    DEAD = 3
    LEFT = 4


LIVE = frozenset({State.ALIVE, State.SUSPECT})


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The record that a member makes of itself. Only the member raises its `incarnation`, and does so with every
    change.

    `session` numbers the starts of its process and must grow with each of them (the agent keeps it on disk): a message
    of an earlier session is a replay, and not new.
    """

    name: str
    address: str
    incarnation: int = 0
    session: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    metadata: bytes = b""

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.address) > MAX_ADDRESS or not _ADDRESS.fullmatch(self.address):
            raise BadRecord(f"member {self.name}: address {self.address[:64]!r} is not HOST:PORT")
        try:
            parse_address(self.address)
        except BadSettings as problem:
            raise BadRecord(f"member {self.name}: address {self.address[:64]!r} is not HOST:PORT") from problem
        if not 0 <= self.incarnation <= MAX_INCARNATION:
            raise BadRecord(f"member {self.name}: incarnation {self.incarnation} is out of range")
        if not 0 <= self.session <= MAX_SESSION:
            raise BadRecord(f"member {self.name}: session {self.session} is out of range")
        if len(self.metadata) > MAX_METADATA:
            raise BadRecord(
                f"member {self.name}: {len(self.metadata)} bytes of metadata, at most {MAX_METADATA} travel"
            )
        _check_labels(self.name, self.labels)

    def with_incarnation(self, incarnation: int) -> "MemberRecord":
        return self if incarnation == self.incarnation else replace(self, incarnation=incarnation)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a member table. Replaced, never changed, so that thousands of simulated tables may share it."""

    record: MemberRecord
    state: State
    since: float

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def incarnation(self) -> int:
        return self.record.incarnation


def check_name(name: str) -> None:
    """Raise BadRecord if a member cannot have this name."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise BadRecord(f"{name[:64]!r} is no member name: letters, digits, '.', '_' and '-', at most {MAX_NAME}")


def sorted_labels(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _check_labels(name: str, labels: tuple[tuple[str, str], ...]) -> None:
    if len(labels) > MAX_LABELS:
        raise BadRecord(f"member {name}: {len(labels)} labels, at most {MAX_LABELS} travel")
    for key, value in labels:
        if len(key) > MAX_LABEL_TEXT or not _LABEL_KEY.fullmatch(key):
            raise BadRecord(f"member {name}: {key[:64]!r} is no label name")
        if len(value) > MAX_LABEL_TEXT or not _LABEL_VALUE.fullmatch(value):
            raise BadRecord(f"member {name}: label {key} has a value that is too long or has odd characters")
    keys = [key for key, _ in labels]
    if any(first >= second for first, second in itertools.pairwise(keys)):
        raise BadRecord(f"member {name}: labels must be sorted by name, each name once")
