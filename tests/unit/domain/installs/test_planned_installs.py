"""What a machine lacks for its install, as a plan shows it before the commit."""

from dataclasses import replace

import pytest

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.planned_installs import PlannedInstall, missing_for_install
from rackwright.domain.installs.request import InstallRequest

DISKS: list[Json] = [{"name": name, "bytes": 8 << 30, "fingerprint": "empty"} for name in ("sda", "sdb")]
READY = PlannedInstall(
    "n1",
    "debian-12",
    None,
    "192.0.2.7",
    has_controller=True,
    accepted=True,
    request=InstallRequest("n1", facts={"disks": DISKS}),
)


def _choosing(disk: str) -> PlannedInstall:
    request = replace(READY.request, settings={"disk": disk})
    return replace(READY, chosen_disk=disk, request=request)


def test_a_machine_that_has_everything_lacks_nothing() -> None:
    assert missing_for_install(READY, {"debian-12"}) == ()
    assert READY.disk == "sda"
    assert _choosing("sdb").disk == "sdb"


@pytest.mark.parametrize(
    ("install", "named"),
    [
        (replace(READY, os=None), "provisioner-target-os"),
        (replace(READY, os="ubuntu-24.04"), "rackwright image build ubuntu-24.04"),
        (replace(READY, accepted=False), "rackwright node accept n1"),
        (replace(READY, request=InstallRequest("n1")), "no disk of the machine is known"),
        (_choosing("nvme0"), "no disk with name nvme0; it has sda (8.6 GB), sdb (8.6 GB)"),
        (replace(READY, address=None), "no address"),
        (replace(READY, has_controller=False), "no BMC"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(install: PlannedInstall, named: str) -> None:
    [said] = missing_for_install(install, {"debian-12"})
    assert named in said


def test_a_simulated_machine_needs_no_image() -> None:
    assert missing_for_install(READY, None) == ()
