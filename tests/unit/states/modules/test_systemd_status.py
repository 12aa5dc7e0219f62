"""What `systemctl show` says is read right."""

import pytest

from rackwright.states.support.services import Status
from rackwright.states.support.services.systemd import parse_properties, read_status


@pytest.mark.parametrize(
    ("load", "active", "file", "reload", "expected"),
    [
        ("loaded", "active", "enabled", "yes", Status(True, running=True, enabled=True)),
        ("loaded", "inactive", "disabled", "no", Status(True, enabled=False, can_reload=False)),
        ("loaded", "activating", "static", "yes", Status(True, busy=True)),
        ("loaded", "failed", "enabled", "yes", Status(True, enabled=True)),
        ("masked", "inactive", "masked", "yes", Status(True, enabled=False, masked=True)),
        ("not-found", "inactive", "", "yes", Status(False)),
    ],
)
def test_properties_become_a_status(load: str, active: str, file: str, reload: str, expected: Status) -> None:
    text = f"LoadState={load}\nActiveState={active}\nUnitFileState={file}\nCanReload={reload}\nNeedDaemonReload=no\n"
    assert read_status(parse_properties(text)) == expected
