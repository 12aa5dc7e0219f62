"""The health of the software on other servers, read from their member records, and which checks have changed.

How a server checks its own software is `health_checks.py` and `health_runner.py`.
"""

from dataclasses import dataclass

from rackwright.mesh.health.health_checks import CheckReport, Status, unpack_reports
from rackwright.mesh.membership.member import MemberRecord
from rackwright.mesh.membership.metadata import Section, unpack_sections
from rackwright.mesh.membership.wire import BadMessage

MAX_RECORDS = 20_000
"""Members whose last record is remembered: as many as a member table may have.

Dropped first is the record that has not changed for longest: that of a member that has left the table.
"""


@dataclass(frozen=True)
class Software:
    """The check reports of a member. `left_out` counts the reports that did not fit into its record."""

    reports: tuple[CheckReport, ...] = ()
    left_out: int = 0
    readable: bool = True

    def status_words(self) -> dict[str, str]:
        """Return the status of each check as a word."""
        return {report.name: report.status.name.lower() for report in self.reports}

    def reasons(self) -> dict[str, str]:
        return {report.name: report.reason for report in self.reports if report.reason}


def read_software(record: MemberRecord) -> Software:
    """Return the check reports in a member's record, none if they cannot be read.

    Whether the member is alive does not depend on them.
    """
    if not record.metadata:
        return Software()
    packed = unpack_sections(record.metadata).get(Section.HEALTH)
    if packed is None:
        return Software(readable=False) if not unpack_sections(record.metadata) else Software()
    try:
        reports, left_out = unpack_reports(packed)
    except BadMessage:
        return Software(readable=False)
    return Software(tuple(reports), left_out)


class SoftwareTracker:
    """The last record of each member, to find which checks have changed since."""

    def __init__(self) -> None:
        self._last_records: dict[str, MemberRecord] = {}

    def changes(self, record: MemberRecord) -> list[CheckReport]:
        last = self._last_records.pop(record.name, None)
        before = {report.name: report.status for report in read_software(last).reports} if last else {}
        now = read_software(record)
        if now.reports:
            if len(self._last_records) >= MAX_RECORDS:
                del self._last_records[next(iter(self._last_records))]
            self._last_records[record.name] = record
        return [
            report
            for report in now.reports
            if report.status is not Status.UNKNOWN
            and before.get(report.name) != report.status
            and not (report.status is Status.PASSING and before.get(report.name) in (None, Status.UNKNOWN))
        ]

    def forget(self, name: str) -> None:
        self._last_records.pop(name, None)
