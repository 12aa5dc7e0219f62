"""Software health, the pure half: what is checked, when, what counts as failing, and how it travels with the gossip.

No I/O and no clock: how a check is done is `health_probes.py`, and `health_runner.py` runs them. The arithmetic
promises that a failure is known within two intervals, whatever it is (gone or hanging), and a recovery within one and
the check's own time.
"""

import enum
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from rackwright.mesh.membership.wire import BadMessage, Reader, encode_text

MAX_CHECKS = 64
MAX_CHECK_NAME = 32
MAX_REASON = 48
HEALTH_BYTES = 400
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class BadCheck(ValueError):
    """A health check is declared wrongly."""


class Status(enum.IntEnum):
    """A wire enum: only append, never renumber."""

    UNKNOWN = 0
    PASSING = 1
    FAILING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What all checks have. After a first failure a check is repeated sooner than its interval, until it counts."""

    name: str
    interval: float = 10.0
    timeout: float = 2.0
    failures: int = 2  # in a row, before it counts

    def __post_init__(self) -> None:
        if len(self.name) > MAX_CHECK_NAME or not _NAME.fullmatch(self.name):
            raise BadCheck(
                f"check {self.name[:40]!r}: a name has letters, digits, '.', '_', '-', at most {MAX_CHECK_NAME}"
            )
        if not (math.isfinite(self.interval) and self.interval > 0 and self.timeout > 0 and self.failures >= 1):
            raise BadCheck(f"check {self.name}: interval, timeout and failures must be above zero")
        longest = 0.75 * self.interval / self.failures
        if self.timeout > longest:
            raise BadCheck(
                f"check {self.name}: a timeout of {self.timeout:g} s is too long to know of {self.failures} failures "
                f"within two intervals of {self.interval:g} s; make it at most {longest:g} s, or the interval longer"
            )

    @property
    def repeat_after(self) -> float:
        """All the repetitions together take a quarter of the interval, and their timeouts at most the rest of it."""
        return self.interval / 4 / max(1, self.failures - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCheck(Check):
    """A process of this name runs (its `comm`, or the file name of its program), neither stopped nor a zombie."""

    process: str
    pid_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpCheck(Check):
    """Something accepts, and says `expect` if that is given. A stopped process still accepts: its kernel does."""

    host: str = "127.0.0.1"
    port: int
    expect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCheck(Check):
    url: str
    statuses: tuple[int, ...] = (200,)
    contains: str = ""
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCheck(Check):
    """A program with its arguments, never a shell; exit status 0 passes."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCheck(Check):
    interval: float = 30.0
    timeout: float = 5.0
    path: str = "/"
    free_percent: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCheck(Check):
    """The wall clock runs as fast as the monotonic one; with `synchronised`, the kernel must say that it is
    disciplined.
    """

    failures: int = 1
    largest_step: float = 1.0
    synchronised: bool = False


KINDS: dict[str, type[Check]] = {
    "process": ProcessCheck,
    "tcp": TcpCheck,
    "http": HttpCheck,
    "command": CommandCheck,
    "disk": DiskCheck,
    "clock": ClockCheck,
}


def built_in_checks() -> list[Check]:
    """What every agent looks at without being told."""
    return [DiskCheck(name="disk"), ClockCheck(name="clock")]


def parse_checks(declared: Iterable[Mapping[str, object]]) -> list[Check]:
    """Checks as the cluster's configuration declares them: `{name: web, kind: http, url: ..., interval: 5}`."""
    checks = [_parse_check(entry) for entry in declared]
    if len(checks) > MAX_CHECKS:
        raise BadCheck(f"{len(checks)} health checks declared, at most {MAX_CHECKS} are run")
    names = [check.name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise BadCheck(f"check {name} is declared more than once")
    return checks


def _parse_check(declared: Mapping[str, object]) -> Check:
    # Costs a third of an agent's start, and most agents have no checks but those built in.
    from pydantic import TypeAdapter, ValidationError

    name = str(declared.get("name", "(unnamed)"))
    kind = KINDS.get(str(declared.get("kind")))
    if kind is None:
        raise BadCheck(f"check {name}: kind must be one of {', '.join(KINDS)}, not {declared.get('kind')!r}")
    arguments = {key: value for key, value in declared.items() if key != "kind"}
    unknown = sorted(arguments.keys() - {entry.name for entry in fields(kind)})
    if unknown:
        known = ", ".join(entry.name for entry in fields(kind))
        raise BadCheck(f"check {name}: {declared['kind']} knows no setting {', '.join(unknown)}; it knows {known}")
    try:
        return TypeAdapter(kind).validate_python(arguments)
    except ValidationError as error:
        problem = error.errors()[0]
        if isinstance(ours := problem.get("ctx", {}).get("error"), BadCheck):
            raise ours from error
        setting = ".".join(str(part) for part in problem["loc"])
        raise BadCheck(f"check {name}: {setting}: {problem['msg'].lower()}") from error


# -- when, and what counts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a check found."""

    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What is held of a check: travels with the gossip. `reason` is why it began to fail, and stays until it passes."""

    name: str
    status: Status
    reason: str = ""


@dataclass(slots=True)
class _Watch:
    check: Check
    due: float
    running: bool = False
    failed: int = 0
    result: Result = field(init=False)

    def __post_init__(self) -> None:
        self.result = Result(self.check.name, Status.UNKNOWN)


class Schedule:
    """When each check is due and what its outcomes amount to."""

    def __init__(self, checks: Iterable[Check], now: float) -> None:
        self._watches = {check.name: _Watch(check, now) for check in checks}

    def next_deadline(self) -> float:
        return min((watch.due for watch in self._watches.values() if not watch.running), default=math.inf)

    def due(self, now: float) -> list[Check]:
        """Checks to run now. One that still runs is never started again: a hanging service must not gather hanging
        checks.
        """
        starting = [watch for watch in self._watches.values() if not watch.running and watch.due <= now]
        for watch in starting:
            watch.running = True
            watch.due = now + watch.check.interval
        return [watch.check for watch in starting]

    def finished(self, now: float, name: str, outcome: Outcome) -> Result | None:
        """The new result if this outcome changed it."""
        watch = self._watches[name]
        watch.running = False
        before = watch.result
        if outcome.passed:
            watch.failed = 0
            watch.result = Result(name, Status.PASSING)
        else:
            watch.failed += 1
            if watch.failed >= watch.check.failures:
                reason = before.reason if before.status is Status.FAILING else plain(outcome.reason)
                watch.result = Result(name, Status.FAILING, reason)
            else:
                watch.due = min(watch.due, now + watch.check.repeat_after)
        watch.due = max(watch.due, now)
        return watch.result if watch.result != before else None

    def results(self) -> list[Result]:
        return [watch.result for watch in self._watches.values()]


def judge_disk(free: int, total: int, check: DiskCheck) -> Outcome:
    percent = 100.0 * free / total if total else 0.0
    if percent >= check.free_percent:
        return Outcome(True)
    return Outcome(False, f"{check.path}: {percent:.1f} % free, {check.free_percent:g} % wanted")


def judge_clock(wall: float, monotonic: float, disciplined: bool, check: ClockCheck) -> Outcome:
    """`wall` and `monotonic` are the seconds both clocks counted since the last look."""
    step = wall - monotonic
    if abs(step) > check.largest_step:
        return Outcome(False, f"the clock was stepped by {step:+.1f} s")
    if check.synchronised and not disciplined:
        return Outcome(False, "the clock is not synchronised")
    return Outcome(True)


# -- on the wire -------------------------------------------------------------------------------------------------------


def plain(reason: str) -> str:
    """A reason as it may travel: printable ASCII, bounded."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in reason)[:MAX_REASON].rstrip()


def pack_results(results: Iterable[Result], room: int = HEALTH_BYTES) -> bytes:
    """Failing ones first and with their reasons; what does not fit is counted, and is passing unless very much
    fails.
    """
    ordered = sorted(results, key=lambda result: (-result.status, result.name))
    if sum(_size(result) for result in ordered) + 1 > room:
        # Names are worth more than reasons.
        ordered = [replace(result, reason="") for result in ordered]
    packed, left_out = [], 0
    room -= 1
    for result in ordered:
        if _size(result) > room:
            left_out += 1
            continue
        room -= _size(result)
        packed.append(bytes([result.status]) + encode_text(result.name) + encode_text(result.reason))
    return bytes([min(left_out, 255)]) + b"".join(packed)


def unpack_results(packed: bytes) -> tuple[list[Result], int]:
    """The results, and how many were left out. Raises `BadMessage` if this is no such thing."""
    reader = Reader(packed)
    left_out = reader.u8()
    results: list[Result] = []
    while not reader.at_end:
        status, name, reason = reader.u8(), reader.text(), reader.text()
        if status not in Status.__members__.values():
            raise BadMessage(f"unknown health status {status}")
        if len(name) > MAX_CHECK_NAME or not _NAME.fullmatch(name) or reason != plain(reason):
            raise BadMessage("a health result with a bad name or reason")
        results.append(Result(name, Status(status), reason))
    return results, left_out


def _size(result: Result) -> int:
    return 3 + len(result.name) + len(result.reason)
