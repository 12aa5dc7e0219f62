"""The lines of an install in the log of its run: its stages, how long each took, and how much of the image is written.

Pure. The server's own stages are certain; the installer's reports come from a machine that may be anybody's. So a
report is a few bounded numbers and a name, the words and rates are made here by the server's own clock, a report that
was sent twice or comes late adds no line, and the lines of one install are bounded in number and length.
"""

from dataclasses import dataclass, replace

from rackwright.domain.machines.install import Attempt, Stage

LINE_PERCENT = 10
LINE_SECONDS = 30.0
"""A line is written after so much progress, or after so many seconds with any progress."""
MOST_STAGES = 16
"""Stages that an installer may name; the real one has four."""
MOST_LINES = 500
"""Lines about the reports of one installer."""
LONGEST_ERROR = 1000
"""Characters of an error in the log; the run has the whole error."""

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
    """A report of an installer on how far it is."""

    stage: str
    percent: int
    """Of the whole install."""
    bytes: int | None = None
    bytes_total: int | None = None
    """Of this stage."""
    round: int = 1
    """How often the stage began, counted from 1; when it was cut off, it goes on or begins anew."""


@dataclass(frozen=True)
class InstallerStage:
    """The stage that an installer is at, and what the log says of it. Times are the server's, in seconds."""

    name: str
    since: float
    round: int = 1
    percent: int = 0
    bytes: int = 0
    told_at: float = 0.0
    """When the last line was written; the share and the bytes that it told are in the next two fields."""
    told_share: int = 0
    told_bytes: int = 0


@dataclass(frozen=True)
class InstallLog:
    """The state of the log of an install. It is stored, so its fields keep their names."""

    begun: float | None = None
    since: float | None = None
    """When the server's stage began; None: before logs were kept."""
    at: InstallerStage | None = None
    earlier: tuple[str, ...] = ()
    """Names of the installer's stages that are over."""
    lines: int = 0


Lines = list[str]


def begin_log(target_os: str, now: float) -> tuple[InstallLog, Lines]:
    """Return the log of an attempt that was opened just now, and its first lines."""
    return InstallLog(now, now), [f"install of {target_os} begun", SERVER_STAGES[Stage.WAITING]]


def log_stage_change(
    log: InstallLog, before: Stage, after: Attempt, target_os: str, now: float
) -> tuple[InstallLog, Lines]:
    """Log that the attempt came from one stage to another: the end of the first, its duration, and the next."""
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


def log_report(log: InstallLog, report: Report, now: float) -> tuple[InstallLog, Lines] | None:
    """Log a report of the installer; None if the report is outdated, sent again, or of one stage too many."""
    if log.at is None or log.at.name != report.stage:
        after = _log_new_stage(log, report, now)
    elif _progress_of(report) <= (log.at.round, log.at.bytes, log.at.percent):
        return None
    else:
        stage, lines = _log_progress(log.at, report, now)
        after = replace(log, at=stage), lines
    return None if after is None else _limit_lines(*after)


def _log_new_stage(log: InstallLog, report: Report, now: float) -> tuple[InstallLog, Lines] | None:
    if report.stage in log.earlier or len(log.earlier) >= MOST_STAGES:
        return None
    lines = [] if log.at is None else [_end_line(log.at, now)]
    stage, progress = _log_progress(InstallerStage(report.stage, now, report.round, told_at=now), report, now)
    earlier = log.earlier if log.at is None else (*log.earlier, log.at.name)
    return replace(log, at=stage, earlier=earlier), [*lines, _title(report.stage), *progress]


def _log_progress(stage: InstallerStage, report: Report, now: float) -> tuple[InstallerStage, Lines]:
    """Return the stage with the values of the report, and the line about them if one is due."""
    lines: Lines = []
    share = 0 if not report.bytes_total else 100 * (report.bytes or 0) // report.bytes_total
    if report.round > stage.round:
        goes_on = f"goes on at {_size(report.bytes)}" if report.bytes else "begins anew"
        lines = [f"{_title(stage.name)}: {goes_on}, it was cut off after {_size(stage.bytes)}"]
        stage = replace(stage, round=report.round, told_at=now, told_share=share, told_bytes=report.bytes or 0)
    stage = replace(stage, percent=report.percent, bytes=report.bytes or 0)
    if not report.bytes_total or stage.bytes <= stage.told_bytes:
        return stage, lines
    if share - stage.told_share < LINE_PERCENT and now - stage.told_at < LINE_SECONDS:
        return stage, lines
    rate = _rate(stage.bytes - stage.told_bytes, now - stage.told_at)
    lines.append(f"{_title(stage.name)}: {share} % ({_size(stage.bytes)} of {_size(report.bytes_total)}{rate})")
    return replace(stage, told_at=now, told_share=share, told_bytes=stage.bytes), lines


def _limit_lines(log: InstallLog, lines: Lines) -> tuple[InstallLog, Lines]:
    room = MOST_LINES - log.lines
    if len(lines) <= room:
        return replace(log, lines=log.lines + len(lines)), lines
    return replace(log, lines=MOST_LINES + 1), [*lines[:room], LEFT_OUT] if room >= 0 else []


def _progress_of(report: Report) -> tuple[int, int, int]:
    """Return how far a report is within its stage, so that two reports can be compared."""
    return report.round, report.bytes or 0, report.percent


def _end_line(stage: InstallerStage, now: float, *, failed: bool = False) -> str:
    rate = _rate(stage.bytes, now - stage.since)
    amount = f" ({_size(stage.bytes)}{rate})" if stage.bytes and not failed and stage.round == 1 else ""
    return f"{_title(stage.name)}: {'failed' if failed else 'done'}{_after(stage.since, now)}{amount}"


def _title(stage: str) -> str:
    return INSTALLER_STAGES.get(stage, stage)


def _after(since: float | None, now: float) -> str:
    return "" if since is None else f" after {_duration(max(0.0, now - since))}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder} s" if minutes else f"{remainder} s"


def _rate(size: int, seconds: float) -> str:
    return f", {_size(size / seconds)}/s" if seconds > 0 else ""


def _size(size: float) -> str:
    """Return a number of bytes in words, in powers of ten, as disks and links are sold."""
    for unit in ("bytes", "kB", "MB"):
        if round(size) < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def one_line(text: str) -> str:
    """Return a text from outside as part of a line: no line ends, nothing that steers a terminal, bounded."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_ERROR])
    return " ".join(shown.split())
