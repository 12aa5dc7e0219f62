"""Planned installs, and what their machines still lack. Pure; the store reads what is known of the machines."""

from collections.abc import Collection
from dataclasses import dataclass

from rackwright.domain.catalogue import Json


@dataclass(frozen=True)
class PlannedInstall:
    """An install that a commit would begin, and what is known of its machine."""

    node: str
    os: str | None
    """None: nobody chose one."""
    chosen_disk: str | None
    disks: tuple[str, ...]
    """The names of its disks, in the order of discovery."""
    address: str | None
    has_controller: bool
    accepted: bool
    """Whether a person who may accept machines agreed which machine it is."""

    @property
    def disk(self) -> str | None:
        """The disk that is installed to: the chosen one, else the first that was found."""
        return self.chosen_disk or next(iter(self.disks), None)


def disk_names(disks: Json) -> tuple[str, ...]:
    """Return the names of disks in what a machine reported, which may be anything."""
    listed = disks if isinstance(disks, list) else []
    names = (disk.get("name") for disk in listed if isinstance(disk, dict))
    return tuple(name for name in names if isinstance(name, str) and name)


def missing_for_install(install: PlannedInstall, built: Collection[str] | None) -> tuple[str, ...]:
    """Return what an install still lacks, each with what to do about it.

    `built` are the images that exist; None: no image is needed.
    """
    lacking = []
    if install.os is None:
        lacking.append("no operating system is chosen: set provisioner-target-os")
    elif built is not None and install.os not in built:
        lacking.append(f"the image of {install.os} is not built: rackwright image build {install.os}")
    if not install.accepted:
        lacking.append(f"nobody accepted the machine yet: rackwright node accept {install.node}")
    if not install.disks:
        lacking.append("no disk is known: the machine was not discovered yet")
    elif install.chosen_disk is not None and install.chosen_disk not in install.disks:
        lacking.append(f"it has no disk {install.chosen_disk}; discovery found {', '.join(install.disks)}")
    if install.address is None:
        lacking.append("no address is known: let it boot from the network, or say it in its hint")
    if not install.has_controller:
        lacking.append("no BMC is known: it is restarted over SSH, and by hand where that fails")
    return tuple(lacking)
