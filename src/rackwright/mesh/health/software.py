"""The health of the software on every server, as this one knows it: read from what members say of themselves.

How a server checks its own is `health_checks.py` and `health_runner.py`; here it is read, and changes are told apart.
"""

from dataclasses import dataclass

from rackwright.mesh.health.health_checks import Result, Status, unpack_results
from rackwright.mesh.membership.member import MemberRecord
from rackwright.mesh.membership.metadata import Section, unpack_sections
from rackwright.mesh.membership.wire import BadMessage

MAX_HELD = 20_000
"""Members whose software is remembered: as many as a table may have. Those that have left it are the first to go."""


@dataclass(frozen=True)
class Software:
    results: tuple[Result, ...] = ()
    left_out: int = 0
    readable: bool = True

    def shown(self) -> dict[str, str]:
        """Check by check, in words."""
        return {result.name: result.status.name.lower() for result in self.results}

    def reasons(self) -> dict[str, str]:
        return {result.name: result.reason for result in self.results if result.reason}


def software_of(record: MemberRecord) -> Software:
    """What a member says of its software. One that cannot be read says nothing; its life is another matter."""
    if not record.metadata:
        return Software()
    packed = unpack_sections(record.metadata).get(Section.HEALTH)
    if packed is None:
        return Software(readable=False) if not unpack_sections(record.metadata) else Software()
    try:
        results, left_out = unpack_results(packed)
    except BadMessage:
        return Software(readable=False)
    return Software(tuple(results), left_out)


class SoftwareWatch:
    """Tells what changed since a member last spoke of its software."""

    def __init__(self) -> None:
        self._held: dict[str, MemberRecord] = {}

    def changes(self, record: MemberRecord) -> list[Result]:
        held = self._held.pop(record.name, None)
        before = {result.name: result.status for result in software_of(held).results} if held else {}
        now = software_of(record)
        if now.results:
            if len(self._held) >= MAX_HELD:
                del self._held[next(iter(self._held))]
            self._held[record.name] = record
        return [
            result
            for result in now.results
            if result.status is not Status.UNKNOWN
            and before.get(result.name) != result.status
            and not (result.status is Status.PASSING and before.get(result.name) in (None, Status.UNKNOWN))
        ]

    def forget(self, name: str) -> None:
        self._held.pop(name, None)
