"""The disks of an install: what the installer does to them, and which are wiped."""

from rackwright.domain.installs.processor import check_processor
from rackwright.domain.installs.request import InstallPart, InstallRequest, Problem
from rackwright.domain.installs.storage.image import check_image
from rackwright.domain.installs.storage.items import DISK_ATTRIB
from rackwright.domain.installs.storage.layouts import LAYOUTS
from rackwright.domain.installs.storage.resolve import resolve_storage
from rackwright.domain.installs.storage.steps import storage_config

FOR_OLD_AGENTS = "by that name: this layout needs a newer sledgehammer (rackwright image build sledgehammer)"
"""What a sledgehammer that knows no layouts is told as the name of its disk, so that it fails and writes nothing."""


def lay_out_disks(request: InstallRequest) -> InstallPart:
    """Return the steps that lay out the disks of a machine, and the disks that lose what is on them."""
    foreign = check_processor(request)
    if foreign:
        return InstallPart(problems=foreign)
    storage, problems = resolve_storage(request)
    if storage is None:
        return InstallPart(problems=problems)
    lacks = check_image(request.image, storage)
    if lacks:
        return InstallPart(problems=lacks)
    notes = _find_ignored(request)
    disk = storage.disks[0].name if storage.is_flat else FOR_OLD_AGENTS
    return InstallPart({"disk": disk, "storage": storage_config(storage)}, notes=notes, wiped=storage.disks)


def _find_ignored(request: InstallRequest) -> tuple[Problem, ...]:
    """Return what people chose that changes nothing: a document names its disks itself."""
    storage = request.setting("storage")
    is_document = bool(storage) and not (isinstance(storage, str) and storage.strip() in LAYOUTS)
    if request.setting("disk") and is_document:
        return (Problem(DISK_ATTRIB, "is not looked at, since the document of provisioner-storage names its disks"),)
    return ()
