"""Planned installs, and what their machines still lack. Pure; the store reads what is known of the machines."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.disks import read_disks
from rackwright.domain.installs.request import InstallRequest
from rackwright.domain.installs.resolve import ResolvedInstall, resolve_install
from rackwright.domain.installs.wipes import InstallWipes, is_known

DISK_ATTRIBS = frozenset({"provisioner-disk", "provisioner-storage"})
"""The attributes by which people choose disks."""


_CHOICES = ("disk", "storage", "kernel_arguments", "network", "user_data", "meta_data")


@dataclass(frozen=True)
class PlannedInstall:
    """An install that a commit would begin, and what is known of its machine."""

    node: str
    os: str | None
    """None: nobody chose one."""
    chosen_disk: str | None
    address: str | None
    has_controller: bool
    accepted: bool
    """Whether a person who may accept machines agreed which machine it is."""
    request: InstallRequest
    """What the install is resolved from."""
    node_role_id: int = 0

    @cached_property
    def resolved(self) -> ResolvedInstall:
        """What the install comes to on its machine, as it is known now."""
        return resolve_install(self.request)

    @property
    def wipes(self) -> InstallWipes:
        """What it wipes. A mistake about disks waits while they are not known: the machine has to be discovered."""
        disks = read_disks(self.request.facts.get("disks"))
        are_known = bool(disks) and all(disk.bytes is not None for disk in disks)
        problems = tuple(
            replace(problem, waits=True) if not are_known and problem.attrib in DISK_ATTRIBS else problem
            for problem in self.resolved.problems
        )
        return InstallWipes(self.node, self.node_role_id, self.resolved.wiped, problems, self._choices)

    @property
    def _choices(self) -> JsonObject:
        """What decides which system is put on which disks, and how. No secrets: a digest of them could be guessed."""
        firmware = self.request.facts.get("firmware")
        chosen = {name: self.request.setting(name) for name in _CHOICES}
        return {"os": self.os, "firmware": firmware.get("mode") if isinstance(firmware, dict) else None, **chosen}

    @property
    def disk(self) -> str | None:
        """The first disk that is written to; the chosen one where that is not known yet."""
        return next((disk.name for disk in self.resolved.wiped), self.chosen_disk)


def missing_for_install(
    install: PlannedInstall, built: Collection[str] | None, refused: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return what an install still lacks, each with what to do about it.

    `built` are the images that exist; None: no image is needed. `refused` says why those must not be installed that
    exist all the same.
    """
    lacking = []
    if install.os is None:
        lacking.append("no operating system is chosen: set provisioner-target-os")
    elif built is not None and install.os not in built:
        lacking.append(f"the image of {install.os} is not built: rackwright image build {install.os}")
    elif refused and install.os in refused:
        lacking.append(refused[install.os])
    if not install.accepted:
        lacking.append(f"nobody accepted the machine yet: rackwright node accept {install.node}")
    if install.address is None:
        lacking.append("no address is known: let it boot from the network, or say it in its hint")
    lacking += [str(problem) for problem in install.resolved.problems]
    lacking += [
        f"what is on {disk.name} is not known: the installer writes to it only if it is empty. Have the machine boot "
        "sledgehammer of today, and look at the plan again"
        for disk in install.resolved.wiped
        if not is_known(disk)
    ]
    lacking += [f"note: {note}" for note in install.resolved.notes]
    if not install.has_controller:
        lacking.append("no BMC is known: it is restarted over SSH, and by hand where that fails")
    return tuple(lacking)
