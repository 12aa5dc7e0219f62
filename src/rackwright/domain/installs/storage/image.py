"""Whether the system of an image starts from a layout: it would fail on the machine, when the disks are wiped."""

from collections.abc import Iterator

from rackwright.domain.installs.processor import SYSTEM_ATTRIB
from rackwright.domain.installs.request import Problem, SystemImage
from rackwright.domain.installs.storage.files import FileSystem
from rackwright.domain.installs.storage.items import ATTRIB
from rackwright.domain.installs.storage.resolve import ResolvedStorage

MOUNTED_FIRST = ("/", "/usr")
"""What the initial file system mounts, before anything of the system itself runs."""
WAY_OUT = "choose another layout, or an image that has it (rackwright image build makes such)"


def check_image(image: SystemImage | None, storage: ResolvedStorage) -> tuple[Problem, ...]:
    """Return why the system of an image cannot be installed on a layout; nothing if no image is known yet."""
    return () if image is None else tuple(_find_lacks(image, storage))


def _find_lacks(image: SystemImage, storage: ResolvedStorage) -> Iterator[Problem]:
    if storage.is_uefi and not image.starts_by_uefi:
        yield Problem(
            SYSTEM_ATTRIB,
            f"the machine boots by UEFI, and {image.system} starts only from a BIOS: its image lacks shim-signed and"
            " grub-efi-amd64-signed",
        )
    starts_from_array = any(fs.path in MOUNTED_FIRST and _is_on_array(fs, storage) for fs in storage.file_systems)
    if starts_from_array and not image.starts_from_raid:
        yield Problem(ATTRIB, f"the image of {image.system} has nothing that assembles RAID at boot: {WAY_OUT}")
    elif storage.arrays and not image.assembles_raid:
        yield Problem(ATTRIB, f"the image of {image.system} has no mdadm for an array: {WAY_OUT}")
    if storage.groups and not image.has_lvm:
        yield Problem(ATTRIB, f"the image of {image.system} has no lvm2 for a volume group: {WAY_OUT}")


def _is_on_array(file_system: FileSystem, storage: ResolvedStorage) -> bool:
    group = file_system.device.partition("/")[0] if "/" in file_system.device else ""
    members = [member for made in storage.groups if made.name == group for member in made.members]
    return any(device.startswith("md") for device in ([file_system.device] if not group else members))
