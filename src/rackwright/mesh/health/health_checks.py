"""The rules of software health checks: declarations, schedule, when a check counts as failing, and the gossip format.

No I/O and no clock: `health_probes.py` carries a check out, `health_runner.py` runs the checks on time. The arithmetic
guarantees that a failure is known within two intervals, whether the software is gone or hangs, and a recovery within
one interval plus the check's own duration.
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
    """The state of a check. Sent between members: only append, never renumber."""

    UNKNOWN = 0
    PASSING = 1
    FAILING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The settings that every check has.

    After a first failure a check is repeated sooner than its interval, until the failure counts.
    """

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
        """Seconds until a failed check is repeated.

        All repetitions together take a quarter of the interval, and their timeouts at most the other three quarters.
        """
        return self.interval / 4 / max(1, self.failures - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCheck(Check):
    """A process of this name runs (its `comm`, or the file name of its program), neither stopped nor a zombie."""

    process: str
    pid_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpCheck(Check):
    """A port accepts connections, and sends `expect` if that is set.

    A stopped process still accepts connections: its kernel does that.
    """

    host: str = "127.0.0.1"
    port: int
    expect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCheck(Check):
    """A URL answers with one of the statuses, and with a body that contains the text `contains`."""

    url: str
    statuses: tuple[int, ...] = (200,)
    contains: str = ""
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCheck(Check):
    """A program run with its arguments, never by a shell, that ends with exit status 0."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCheck(Check):
    """A file system has at least `free_percent` free."""

    interval: float = 30.0
    timeout: float = 5.0
    path: str = "/"
    free_percent: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCheck(Check):
    """The wall clock runs as fast as the monotonic clock.

    With `synchronised`, the kernel must also report that an NTP client disciplines the clock.
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
    """Return the checks that every agent runs without a declaration."""
    return [DiskCheck(name="disk"), ClockCheck(name="clock")]


def parse_checks(declared: Iterable[Mapping[str, object]]) -> list[Check]:
    """Read checks as the cluster's configuration declares them: `{name: web, kind: http, url: ..., interval: 5}`."""
    checks = [_parse_check(entry) for entry in declared]
    if len(checks) > MAX_CHECKS:
        raise BadCheck(f"{len(checks)} health checks declared, at most {MAX_CHECKS} are run")
    names = [check.name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise BadCheck(f"check {name} is declared more than once")
    return checks


def _parse_check(declared: Mapping[str, object]) -> Check:
    # This import costs a third of an agent's start, and most agents have only the built-in checks.
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
        if isinstance(bad_check := problem.get("ctx", {}).get("error"), BadCheck):
            raise bad_check from error
        setting = ".".join(str(part) for part in problem["loc"])
        raise BadCheck(f"check {name}: {setting}: {problem['msg'].lower()}") from error


# -- schedule ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a single run of a check returned."""

    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The state of a check over its last runs, as sent to the other members by gossip.

    `reason` is why the check began to fail, and stays the same until the check passes.
    """

    name: str
    status: Status
    reason: str = ""


@dataclass(slots=True)
class _ScheduledCheck:
    """A check, when it is due next, how often it failed in a row, and its report."""

    check: Check
    due: float
    running: bool = False
    failed: int = 0
    report: CheckReport = field(init=False)

    def __post_init__(self) -> None:
        self.report = CheckReport(self.check.name, Status.UNKNOWN)


class Schedule:
    """When each check is due, and the report that follows from its results."""

    def __init__(self, checks: Iterable[Check], now: float) -> None:
        self._scheduled = {check.name: _ScheduledCheck(check, now) for check in checks}

    def next_deadline(self) -> float:
        return min((scheduled.due for scheduled in self._scheduled.values() if not scheduled.running), default=math.inf)

    def due(self, now: float) -> list[Check]:
        """Return the checks to run now, and mark them as running.

        A check that still runs is not started again: a hanging service must not collect hanging checks.
        """
        starting = [
            scheduled for scheduled in self._scheduled.values() if not scheduled.running and scheduled.due <= now
        ]
        for scheduled in starting:
            scheduled.running = True
            scheduled.due = now + scheduled.check.interval
        return [scheduled.check for scheduled in starting]

    def record_result(self, now: float, name: str, result: CheckResult) -> CheckReport | None:
        """Take the result of a check that has ended; return the new report if the result changed it."""
        scheduled = self._scheduled[name]
        scheduled.running = False
        before = scheduled.report
        if result.passed:
            scheduled.failed = 0
            scheduled.report = CheckReport(name, Status.PASSING)
        else:
            scheduled.failed += 1
            if scheduled.failed >= scheduled.check.failures:
                reason = before.reason if before.status is Status.FAILING else printable_reason(result.reason)
                scheduled.report = CheckReport(name, Status.FAILING, reason)
            else:
                scheduled.due = min(scheduled.due, now + scheduled.check.repeat_after)
        scheduled.due = max(scheduled.due, now)
        return scheduled.report if scheduled.report != before else None

    def reports(self) -> list[CheckReport]:
        return [scheduled.report for scheduled in self._scheduled.values()]


def evaluate_disk(free: int, total: int, check: DiskCheck) -> CheckResult:
    percent = 100.0 * free / total if total else 0.0
    if percent >= check.free_percent:
        return CheckResult(True)
    return CheckResult(False, f"{check.path}: {percent:.1f} % free, {check.free_percent:g} % wanted")


def evaluate_clock(wall: float, monotonic: float, disciplined: bool, check: ClockCheck) -> CheckResult:
    """Compare the clocks. `wall` and `monotonic` are the seconds that each counted since the last comparison."""
    step = wall - monotonic
    if abs(step) > check.largest_step:
        return CheckResult(False, f"the clock was stepped by {step:+.1f} s")
    if check.synchronised and not disciplined:
        return CheckResult(False, "the clock is not synchronised")
    return CheckResult(True)


# -- gossip format -----------------------------------------------------------------------------------------------------


def printable_reason(reason: str) -> str:
    """Return a reason as it may be sent: printable ASCII of limited length."""
    return "".join(character if " " <= character <= "~" else "?" for character in reason)[:MAX_REASON].rstrip()


def pack_reports(reports: Iterable[CheckReport], room: int = HEALTH_BYTES) -> bytes:
    """Encode reports into at most `room` bytes: failing checks first, with their reasons.

    Reports that do not fit are only counted; they are of passing checks, unless very many checks fail.
    """
    ordered = sorted(reports, key=lambda report: (-report.status, report.name))
    if sum(_size(report) for report in ordered) + 1 > room:
        # The names of checks matter more than the reasons.
        ordered = [replace(report, reason="") for report in ordered]
    packed, left_out = [], 0
    room -= 1
    for report in ordered:
        if _size(report) > room:
            left_out += 1
            continue
        room -= _size(report)
        packed.append(bytes([report.status]) + encode_text(report.name) + encode_text(report.reason))
    return bytes([min(left_out, 255)]) + b"".join(packed)


def unpack_reports(packed: bytes) -> tuple[list[CheckReport], int]:
    """Return the reports, and how many were left out. Raises `BadMessage` if `packed` is not in this format."""
    reader = Reader(packed)
    left_out = reader.u8()
    reports: list[CheckReport] = []
    while not reader.at_end:
        status, name, reason = reader.u8(), reader.text(), reader.text()
        if status not in Status.__members__.values():
            raise BadMessage(f"unknown health status {status}")
        if len(name) > MAX_CHECK_NAME or not _NAME.fullmatch(name) or reason != printable_reason(reason):
            raise BadMessage("a health result with a bad name or reason")
        reports.append(CheckReport(name, Status(status), reason))
    return reports, left_out


def _size(report: CheckReport) -> int:
    return 3 + len(report.name) + len(report.reason)
