"""A wall clock that a test sets, for agents in processes of their own: libfaketime puts it under every library in them,
TLS too. The time that nobody can set, the monotonic one, passes as ever.
"""

from datetime import UTC, datetime
from pathlib import Path

LIBRARY = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


class FakeClock:
    """The clock of all that run with its `environment`; it is right until it is set."""

    def __init__(self, folder: Path) -> None:
        assert LIBRARY is not None, "libfaketime is missing; run: make packages"
        self._file = folder / "clock"
        self.environment = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.step("+0")

    def step(self, offset: str) -> None:
        """How far it is from the right time: `+3d`, `-40m`."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._file)

    def pass_to(self, moment: datetime) -> None:
        """Put it forward to a moment; not back if that is over."""
        self.step(f"+{max(0.0, (moment - datetime.now(UTC)).total_seconds()):.3f}")
