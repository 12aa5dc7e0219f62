"""The lines of an install's log: which are written when, and that no machine can cause more of them."""

import pytest

from rackwright.domain.machines.install import Attempt, Stage
from rackwright.domain.machines.install_log import (
    LEFT_OUT,
    MOST_LINES,
    MOST_STAGES,
    InstallLog,
    Lines,
    Report,
    begin_log,
    log_report,
    log_stage_change,
    one_line,
)

MB = 10**6


def _log_reports(log: InstallLog, *reports: tuple[float, Report]) -> tuple[InstallLog, Lines]:
    """Return the log after reports, each as (time, report), and all lines that they made."""
    all_lines: Lines = []
    for now, report in reports:
        after = log_report(log, report, now)
        if after is not None:
            log, lines = after
            all_lines += lines
    return log, all_lines


def _image(done: int, total: int = 1000 * MB, round: int = 1) -> Report:
    return Report("download", 15 + 65 * done // total, done, total, round)


def test_each_stage_of_the_server_has_a_begin_and_an_end_with_how_long_it_took() -> None:
    log, lines = begin_log("debian-12", 100.0)
    stages = [Stage.WAITING, Stage.PUBLISHING, Stage.REBOOTING, Stage.INSTALLING, Stage.BOOTING, Stage.PROBING]
    for number, (before, after) in enumerate(zip(stages, [*stages[1:], Stage.DONE], strict=True)):
        log, more = log_stage_change(log, before, Attempt(after), "debian-12", 100.0 + 20 * (number + 1))
        lines += more
    assert lines == [
        "install of debian-12 begun",
        "waiting for its turn",
        "waiting for its turn: done after 20 s",
        "offering the installer to the machine",
        "offering the installer to the machine: done after 20 s",
        "rebooting into the installer",
        "rebooting into the installer: done after 20 s",
        "running the installer",
        "running the installer: done after 20 s",
        "booting from its own disk",
        "booting from its own disk: done after 20 s",
        "checking the installed system",
        "checking the installed system: done after 20 s",
        "debian-12 is installed after 2 min 0 s",
    ]


def test_the_image_is_told_by_share_bytes_and_rate() -> None:
    log, lines = _log_reports(
        InstallLog(0.0, 0.0),
        (10.0, Report("partition", 5)),
        (12.5, Report("download", 15)),
        (14.5, _image(50 * MB)),
        (16.5, _image(100 * MB)),
        (17.5, _image(120 * MB)),
        (26.5, _image(412 * MB)),
        (32.5, _image(1000 * MB)),
        (32.5, Report("configure", 80)),
    )
    assert lines == [
        "partitioning the disk",
        "partitioning the disk: done after 2.5 s",
        "writing the image",
        "writing the image: 10 % (100 MB of 1.0 GB, 25 MB/s)",
        "writing the image: 41 % (412 MB of 1.0 GB, 31 MB/s)",
        "writing the image: 100 % (1.0 GB of 1.0 GB, 98 MB/s)",
        "writing the image: done after 20 s (1.0 GB, 50 MB/s)",
        "configuring the system",
    ]
    _, failed = log_stage_change(log, Stage.INSTALLING, Attempt(Stage.FAILED, error="no room"), "debian-12", 40.0)
    assert failed == ["configuring the system: failed after 7.5 s", "running the installer: failed after 40 s: no room"]


def test_a_slow_download_is_told_every_thirty_seconds() -> None:
    reports = [(float(second), _image(second * 1000)) for second in range(0, 121, 10)]
    _, lines = _log_reports(InstallLog(0.0, 0.0), *reports)
    assert lines == ["writing the image"] + [
        f"writing the image: 0 % ({kilobytes} kB of 1.0 GB, 1 kB/s)" for kilobytes in (30, 60, 90, 120)
    ]


def test_a_report_that_comes_twice_or_late_changes_nothing() -> None:
    reports = [(1.0, Report("partition", 5)), (2.0, _image(500 * MB)), (3.0, Report("configure", 80))]
    log, lines = _log_reports(InstallLog(0.0, 0.0), *reports)
    assert all(log_report(log, report, 100.0) is None for _, report in reports)
    middle, _ = _log_reports(InstallLog(0.0, 0.0), *reports[:2])
    for late in (_image(500 * MB), _image(100 * MB), Report("download", 15), Report("partition", 5)):
        assert log_report(middle, late, 100.0) is None
    assert len(lines) == len(set(lines))


def test_a_download_that_was_cut_off_says_where_it_goes_on() -> None:
    _, lines = _log_reports(
        InstallLog(0.0, 0.0),
        (0.0, Report("download", 15)),
        (10.0, _image(500 * MB)),
        (20.0, _image(100 * MB, round=2)),
        (21.0, _image(600 * MB)),
        (30.0, _image(1000 * MB, round=2)),
        (40.0, Report("configure", 80)),
    )
    assert lines == [
        "writing the image",
        "writing the image: 50 % (500 MB of 1.0 GB, 50 MB/s)",
        "writing the image: goes on at 100 MB, it was cut off after 500 MB",
        "writing the image: 100 % (1.0 GB of 1.0 GB, 90 MB/s)",
        "writing the image: done after 40 s",
        "configuring the system",
    ]


def test_an_installer_that_knows_no_bytes_tells_its_stages() -> None:
    stages = [("partition", 5), ("download", 15), ("configure", 80), ("something-else", 85), ("bootloader", 90)]
    _, lines = _log_reports(InstallLog(0.0, 0.0), *((float(at), Report(*stage)) for at, stage in enumerate(stages)))
    assert [line for line in lines if "done" not in line] == [
        "partitioning the disk",
        "writing the image",
        "configuring the system",
        "something-else",
        "writing the boot loader",
    ]


def test_a_hostile_installer_fills_no_log() -> None:
    flood = [(float(n), Report(f"stage-{n}", 0)) for n in range(10 * MOST_STAGES)]
    log, lines = _log_reports(InstallLog(0.0, 0.0), *flood)
    assert len(lines) <= 2 * MOST_STAGES + 1
    rounds = [(0.0, _image(n * 100 * MB, round=r)) for r in range(1, 101) for n in range(1, 11)]
    log, lines = _log_reports(InstallLog(0.0, 0.0), *rounds)
    assert (len(lines), lines[-1]) == (MOST_LINES + 1, LEFT_OUT)
    assert _log_reports(log, (1000.0, Report("configure", 80)))[1] == []
    assert max(map(len, lines)) < 200


@pytest.mark.parametrize("clock", [5.0, 10.0], ids=["backwards", "standing still"])
def test_a_clock_that_does_not_go_on_gives_no_rate(clock: float) -> None:
    log, _ = _log_reports(InstallLog(0.0, 0.0), (10.0, Report("download", 15)))
    _, lines = _log_reports(log, (clock, _image(500 * MB)))
    assert lines == ["writing the image: 50 % (500 MB of 1.0 GB)"]


def test_an_attempt_from_before_logs_were_kept_has_no_durations() -> None:
    _, lines = log_stage_change(InstallLog(), Stage.BOOTING, Attempt(Stage.PROBING), "debian-12", 10.0)
    assert lines == ["booting from its own disk: done", "checking the installed system"]


def test_an_error_of_a_machine_is_one_line_that_steers_no_terminal() -> None:
    assert one_line("disk\nis installed\x1b[2J \r\n on\u2028fire") == "disk is installed [2J on fire"
    assert len(one_line("x" * 5000)) == 1000
