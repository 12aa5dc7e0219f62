"""The lines that an install writes into the log of its run: its stages, how long each took, and how the image comes in.

Pure. The server's own stages are certain; what the installer reports comes from a machine that may be anybody's. So a
report is a few bounded numbers and a name, the words and rates are made here by the server's own clock, a report that
was sent twice or comes late says nothing again, and the lines of one install are bounded in number and length.
"""

from dataclasses import dataclass, replace

from rackwright.domain.machines.install import Attempt, Stage

LINE_PERCENT = 10
LINE_SECONDS = 30.0
"""A line comes after so much progress, or after so many seconds with any."""
MOST_STAGES = 16
"""Stages that an installer may name; the real one has four."""
MOST_LINES = 500
"""Lines of what an installer reports."""
LONGEST_ERROR = 1000
"""Characters of an error in the log; the run has all of it."""

LEFT_OUT = "[The installer reports too much: the rest of it is left out here.]"

SERVER_STAGES = {
    Stage.WAITING: "waiting for its turn",
    Stage.PUBLISHING: "offering the installer to the machine",
    Stage.REBOOTING: "rebooting into the installer",
    Stage.INSTALLING: "running the installer",
    Stage.BOOTING: "booting from its own disk",
    Stage.PROBING: "checking the installed system",
}

INSTALLER_STAGES = {
    "partition": "partitioning the disk",
    "download": "writing the image",
    "unpack": "unpacking the image",
    "configure": "configuring the system",
    "bootloader": "writing the boot loader",
}


@dataclass(frozen=True)
class Report:
    """What an installer says of how far it is."""

    stage: str
    percent: int
    """Of the whole install."""
    bytes: int | None = None
    bytes_total: int | None = None
    """Of this stage."""
    round: int = 1
    """Greater than 1: the stage began anew so often."""


@dataclass(frozen=True)
class InstallerStage:
    """The stage that an installer is at, and what the log has of it. Times are the server's, in seconds."""

    name: str
    since: float
    round: int = 1
    percent: int = 0
    bytes: int = 0
    told_at: float = 0.0
    """When the last line was written, and what it said."""
    told_share: int = 0
    told_bytes: int = 0


@dataclass(frozen=True)
class InstallLog:
    """How far the log of an install has come."""

    begun: float | None = None
    since: float | None = None
    """When the server's stage began; None: before logs were kept."""
    at: InstallerStage | None = None
    earlier: tuple[str, ...] = ()
    """Stages of the installer that are over."""
    lines: int = 0


Lines = list[str]


def begin(target_os: str, now: float) -> tuple[InstallLog, Lines]:
    """The log of an attempt that was opened just now."""
    return InstallLog(now, now), [f"install of {target_os} begun", SERVER_STAGES[Stage.WAITING]]


def moved(log: InstallLog, before: Stage, after: Attempt, target_os: str, now: float) -> tuple[InstallLog, Lines]:
    """The attempt came from one stage to another: the end of the one, with how long it took, and the next."""
    failed = after.stage is Stage.FAILED
    lines = [] if log.at is None else [_end_line(log.at, now, failed=failed)]
    title = SERVER_STAGES[before]
    if failed:
        lines.append(f"{title}: failed{_after(log.since, now)}: {one_line(after.error)}")
    else:
        lines.append(f"{title}: done{_after(log.since, now)}")
        done = after.stage is Stage.DONE
        lines.append(f"{target_os} is installed{_after(log.begun, now)}" if done else SERVER_STAGES[after.stage])
    return replace(log, since=now, at=None), lines


def reported(log: InstallLog, report: Report, now: float) -> tuple[InstallLog, Lines] | None:
    """The log with a report of the installer; None if it is of the past, sent again, or of one stage too many."""
    if log.at is None or log.at.name != report.stage:
        after = _next_stage(log, report, now)
    elif _place(report) <= (log.at.round, log.at.bytes, log.at.percent):
        return None
    else:
        at, lines = _further(log.at, report, now)
        after = replace(log, at=at), lines
    return None if after is None else _bounded(*after)


def _next_stage(log: InstallLog, report: Report, now: float) -> tuple[InstallLog, Lines] | None:
    if report.stage in log.earlier or len(log.earlier) >= MOST_STAGES:
        return None
    lines = [] if log.at is None else [_end_line(log.at, now)]
    begun, progress = _further(InstallerStage(report.stage, now, report.round, told_at=now), report, now)
    earlier = log.earlier if log.at is None else (*log.earlier, log.at.name)
    return replace(log, at=begun, earlier=earlier), [*lines, _title(report.stage), *progress]


def _further(at: InstallerStage, report: Report, now: float) -> tuple[InstallerStage, Lines]:
    """The stage with what was reported, and the line about it if one is due."""
    lines: Lines = []
    if report.round > at.round:
        lines = [f"{_title(at.name)}: begins anew, it was cut off after {_size(at.bytes)}"]
        at = replace(at, round=report.round, told_at=now, told_share=0, told_bytes=0)
    at = replace(at, percent=report.percent, bytes=report.bytes or 0)
    share = 0 if not report.bytes_total else 100 * at.bytes // report.bytes_total
    if not report.bytes_total or at.bytes <= at.told_bytes:
        return at, lines
    if share - at.told_share < LINE_PERCENT and now - at.told_at < LINE_SECONDS:
        return at, lines
    rate = _rate(at.bytes - at.told_bytes, now - at.told_at)
    lines.append(f"{_title(at.name)}: {share} % ({_size(at.bytes)} of {_size(report.bytes_total)}{rate})")
    return replace(at, told_at=now, told_share=share, told_bytes=at.bytes), lines


def _bounded(log: InstallLog, lines: Lines) -> tuple[InstallLog, Lines]:
    room = MOST_LINES - log.lines
    if len(lines) <= room:
        return replace(log, lines=log.lines + len(lines)), lines
    return replace(log, lines=MOST_LINES + 1), [*lines[:room], LEFT_OUT] if room >= 0 else []


def _place(report: Report) -> tuple[int, int, int]:
    """How far a report is within its stage."""
    return report.round, report.bytes or 0, report.percent


def _end_line(at: InstallerStage, now: float, *, failed: bool = False) -> str:
    seconds = now - at.since
    amount = f" ({_size(at.bytes)}{_rate(at.bytes, seconds)})" if at.bytes and not failed and at.round == 1 else ""
    return f"{_title(at.name)}: {'failed' if failed else 'done'}{_after(at.since, now)}{amount}"


def _title(stage: str) -> str:
    return INSTALLER_STAGES.get(stage, stage)


def _after(since: float | None, now: float) -> str:
    return "" if since is None else f" after {_duration(max(0.0, now - since))}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _rate(size: int, seconds: float) -> str:
    return f", {_size(size / seconds)}/s" if seconds > 0 else ""


def _size(size: float) -> str:
    """Bytes as people say them, in powers of ten, as disks and links are sold."""
    for unit in ("bytes", "kB", "MB"):
        if round(size) < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def one_line(text: str) -> str:
    """A text of others as part of a line: no line ends, nothing that steers a terminal, bounded."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_ERROR])
    return " ".join(shown.split())
