"""The rules of health checks: declarations, schedule, when a check counts as failing, and the gossip format."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackwright.mesh.health.health_checks import (
    HEALTH_BYTES,
    BadCheck,
    Check,
    CheckReport,
    CheckResult,
    ClockCheck,
    CommandCheck,
    DiskCheck,
    HttpCheck,
    ProcessCheck,
    Schedule,
    Status,
    TcpCheck,
    built_in_checks,
    evaluate_clock,
    evaluate_disk,
    pack_reports,
    parse_checks,
    printable_reason,
    unpack_reports,
)
from rackwright.mesh.membership import metadata
from rackwright.mesh.membership.wire import BadMessage

FAILED, PASSED = CheckResult(False, "gone"), CheckResult(True)


def test_checks_are_read_from_their_declaration() -> None:
    assert parse_checks(
        [
            {"name": "etcd", "kind": "process", "process": "etcd"},
            {"name": "ssh", "kind": "tcp", "port": 22, "expect": "SSH-", "interval": 5, "timeout": 1},
            {"name": "web", "kind": "http", "url": "http://127.0.0.1/", "statuses": [200, 204]},
            {"name": "raid", "kind": "command", "command": ["mdadm", "--detail", "/dev/md0"], "failures": 1},
            {"name": "data", "kind": "disk", "path": "/srv", "free_percent": 10},
            {"name": "time", "kind": "clock", "synchronised": True},
        ]
    ) == [
        ProcessCheck(name="etcd", process="etcd"),
        TcpCheck(name="ssh", port=22, expect="SSH-", interval=5.0, timeout=1.0),
        HttpCheck(name="web", url="http://127.0.0.1/", statuses=(200, 204)),
        CommandCheck(name="raid", command=("mdadm", "--detail", "/dev/md0"), failures=1),
        DiskCheck(name="data", path="/srv", free_percent=10.0),
        ClockCheck(name="time", synchronised=True),
    ]


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"name": "x", "kind": "magic"}, "kind must be one of process, tcp, http"),
        ({"name": "x", "kind": "tcp"}, "port: field required"),
        ({"name": "x", "kind": "tcp", "port": "ssh"}, "port: input should be a valid integer"),
        ({"name": "x", "kind": "tcp", "port": 1, "color": "red"}, "knows no setting color; it knows name, interval"),
        ({"name": "x y", "kind": "tcp", "port": 1}, "a name has letters"),
        ({"name": "x", "kind": "tcp", "port": 1, "interval": 0}, "above zero"),
        ({"name": "x", "kind": "tcp", "port": 1, "timeout": 9}, "make it at most 3.75 s"),
        ({"name": "x", "kind": "command", "command": "rm -rf"}, "command: input should be a valid tuple"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(declared: dict[str, object], reason: str) -> None:
    with pytest.raises(BadCheck, match=reason):
        parse_checks([declared])


def test_one_name_is_one_check() -> None:
    with pytest.raises(BadCheck, match="more than once"):
        parse_checks([{"name": "x", "kind": "disk"}, {"name": "x", "kind": "clock"}])


def test_every_agent_looks_at_its_disk_and_its_clock() -> None:
    assert {type(check) for check in built_in_checks()} == {DiskCheck, ClockCheck}


def test_one_failure_of_two_does_not_count_and_is_repeated_soon() -> None:
    schedule = Schedule([Check(name="x", interval=10.0)], 0.0)
    assert [check.name for check in schedule.due(0.0)] == ["x"]
    assert schedule.record_result(0.1, "x", PASSED) == CheckReport("x", Status.PASSING)
    assert schedule.next_deadline() == 10.0
    schedule.due(10.0)
    assert schedule.record_result(10.0, "x", FAILED) is None
    assert schedule.next_deadline() == 12.5
    schedule.due(12.5)
    assert schedule.record_result(12.6, "x", FAILED) == CheckReport("x", Status.FAILING, "gone")
    assert schedule.next_deadline() == 22.5


def test_a_failure_between_two_passes_is_never_told() -> None:
    schedule = Schedule([Check(name="x")], 0.0)
    changes = []
    for number, result in enumerate([PASSED, FAILED, PASSED, FAILED, PASSED]):
        schedule.due(number * 20.0)
        changes.append(schedule.record_result(number * 20.0, "x", result))
    assert changes == [CheckReport("x", Status.PASSING), None, None, None, None]


def test_one_pass_is_a_recovery() -> None:
    schedule = Schedule([Check(name="x", failures=1)], 0.0)
    schedule.due(0.0)
    assert schedule.record_result(0.0, "x", FAILED) == CheckReport("x", Status.FAILING, "gone")
    schedule.due(10.0)
    assert schedule.record_result(10.0, "x", PASSED) == CheckReport("x", Status.PASSING)


def test_another_reason_for_the_same_failure_is_no_news() -> None:
    """Or two reasons that take turns would be gossiped for ever."""
    schedule = Schedule([Check(name="x", failures=1)], 0.0)
    schedule.due(0.0)
    schedule.record_result(0.0, "x", CheckResult(False, "one"))
    schedule.due(10.0)
    assert schedule.record_result(10.0, "x", CheckResult(False, "other")) is None
    assert schedule.reports() == [CheckReport("x", Status.FAILING, "one")]


def test_a_check_that_still_runs_is_not_started_again() -> None:
    schedule = Schedule([Check(name="x")], 0.0)
    assert schedule.due(0.0)
    assert schedule.due(100.0) == []


@given(
    interval=st.floats(0.5, 100.0),
    failures=st.integers(1, 6),
    share=st.floats(0.01, 1.0),
    breaks_at=st.floats(0.0, 1.0),
    hangs=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_a_failure_is_known_within_two_intervals_even_if_it_hangs(
    interval: float, failures: int, share: float, breaks_at: float, hangs: bool
) -> None:
    check = Check(name="x", interval=interval, failures=failures, timeout=0.75 * interval / failures * share)
    schedule = Schedule([check], 0.0)
    schedule.due(0.0)
    schedule.record_result(0.0, "x", PASSED)
    broken_at = breaks_at * interval
    now = 0.0
    while schedule.reports()[0].status is Status.PASSING:
        now = schedule.next_deadline()
        schedule.due(now)
        if now < broken_at:
            schedule.record_result(now, "x", PASSED)
            continue
        now += check.timeout if hangs else 0.0
        schedule.record_result(now, "x", FAILED)
    assert now - broken_at <= 2 * interval * (1 + 1e-9)


@pytest.mark.parametrize(("free", "passes"), [(100, True), (5, True), (4, False), (0, False)])
def test_a_disk_fails_below_its_share_of_free_space(free: int, passes: bool) -> None:
    assert evaluate_disk(free, 100, DiskCheck(name="disk", free_percent=5.0)).passed == passes


@pytest.mark.parametrize(
    ("wall", "monotonic", "disciplined", "synchronised", "passes"),
    [
        (10.0, 10.0, False, False, True),
        (10.9, 10.0, False, False, True),
        (3610.0, 10.0, True, False, False),
        (-50.0, 10.0, True, False, False),
        (10.0, 10.0, False, True, False),
        (10.0, 10.0, True, True, True),
    ],
)
def test_a_clock_fails_when_stepped_or_not_kept(
    wall: float, monotonic: float, disciplined: bool, synchronised: bool, passes: bool
) -> None:
    check = ClockCheck(name="clock", synchronised=synchronised)
    assert evaluate_clock(wall, monotonic, disciplined, check).passed == passes


reports = st.lists(
    st.builds(
        lambda number, status, reason: CheckReport(
            f"check-{number}", status, printable_reason(reason) if status == Status.FAILING else ""
        ),
        st.integers(0, 10_000),
        st.sampled_from(Status),
        st.text(max_size=80),
    ),
    max_size=64,
    unique_by=lambda report: report.name,
)


@given(reports)
@settings(max_examples=200, deadline=None)
def test_results_fit_their_room_and_the_failing_come_first(given_reports: list[CheckReport]) -> None:
    packed = pack_reports(given_reports)
    assert len(packed) <= HEALTH_BYTES
    unpacked, left_out = unpack_reports(packed)
    assert len(unpacked) + left_out == len(given_reports)
    if not left_out:
        assert {report.name: report.status for report in unpacked} == {
            report.name: report.status for report in given_reports
        }
    order = [report.status for report in unpacked]
    assert order == sorted(order, reverse=True)


@given(st.binary(max_size=512))
@settings(max_examples=300, deadline=None)
def test_foreign_bytes_are_no_results_and_no_crash(noise: bytes) -> None:
    try:
        unpacked, _ = unpack_reports(noise)
    except BadMessage:
        return
    assert all(report.name for report in unpacked)


def test_a_long_reason_travels_cut_and_printable() -> None:
    reason = printable_reason("é\x1b[31m" + "x" * 100)
    assert reason.startswith("??[31mxxx")
    assert len(reason) == 48


def test_metadata_holds_sections_and_skips_those_of_a_newer_version() -> None:
    packed = metadata.pack_sections({metadata.Section.HEALTH: b"h", metadata.Section.DATASTORE: b"d"})
    assert metadata.unpack_sections(packed + b"\x63\x00\x01z") == {
        metadata.Section.HEALTH: b"h",
        metadata.Section.DATASTORE: b"d",
    }
    assert metadata.unpack_sections(b"\x01\x00") == {}
    with pytest.raises(ValueError, match="at most 512"):
        metadata.pack_sections({metadata.Section.HEALTH: bytes(511)})
