"""The disks of an install: what the installer does to them, and which are wiped."""

from rackwright.domain.installs.request import InstallPart, InstallRequest
from rackwright.domain.installs.storage.resolve import resolve_storage
from rackwright.domain.installs.storage.steps import storage_config

FOR_OLD_AGENTS = "by that name: this layout needs a newer sledgehammer (rackwright image build sledgehammer)"
"""What a sledgehammer that knows no layouts is told as the name of its disk, so that it fails and writes nothing."""


def lay_out_disks(request: InstallRequest) -> InstallPart:
    """Return the steps that lay out the disks of a machine, and the disks that lose what is on them."""
    storage, problems = resolve_storage(request)
    if storage is None:
        return InstallPart(problems=problems)
    disk = storage.disks[0].name if storage.is_flat else FOR_OLD_AGENTS
    return InstallPart({"disk": disk, "storage": storage_config(storage)}, wiped=storage.disks)
