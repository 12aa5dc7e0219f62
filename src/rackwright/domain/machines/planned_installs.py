"""What a machine that is about to be installed lacks for it. Pure; the store reads what is known of the machine."""

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
    """As discovery found them, the first first."""
    address: str | None
    has_controller: bool
    accepted: bool
    """Somebody who may accept machines agreed which machine it is."""

    @property
    def disk(self) -> str | None:
        """Where it is installed: what was chosen, else the first disk found."""
        return self.chosen_disk or next(iter(self.disks), None)


def disk_names(disks: Json) -> tuple[str, ...]:
    """The names of disks in what a machine reported, whatever else that is."""
    listed = disks if isinstance(disks, list) else []
    names = (disk.get("name") for disk in listed if isinstance(disk, dict))
    return tuple(name for name in names if isinstance(name, str) and name)


def missing(install: PlannedInstall, built: Collection[str] | None) -> tuple[str, ...]:
    """What is not there yet, each with what to do about it. `built` are the images there are; None: none is needed."""
    said = []
    if install.os is None:
        said.append("no operating system is chosen: set provisioner-target-os")
    elif built is not None and install.os not in built:
        said.append(f"the image of {install.os} is not built: rackwright image build {install.os}")
    if not install.accepted:
        said.append(f"nobody accepted the machine yet: rackwright node accept {install.node}")
    if not install.disks:
        said.append("no disk is known: the machine was not discovered yet")
    elif install.chosen_disk is not None and install.chosen_disk not in install.disks:
        said.append(f"it has no disk {install.chosen_disk}; discovery found {', '.join(install.disks)}")
    if install.address is None:
        said.append("no address is known: let it boot from the network, or say it in its hint")
    if not install.has_controller:
        said.append("no BMC is known: it is restarted over SSH, and by hand where that fails")
    return tuple(said)
