"""The file systems of a layout, and where they are mounted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rackwright.domain.installs.storage.blocks import Block, Blocks
from rackwright.domain.installs.storage.items import (
    DiskItem,
    FormatItem,
    MountItem,
    PartitionItem,
    RaidItem,
    Reference,
    VolumeItem,
)

ESP_PATH = "/boot/efi"
LEAST_MIB = {"ext4": 16, "xfs": 300, "vfat": 64, "swap": 8}
"""Below these the programs that make them refuse."""
FAT_END_MIB = 2 << 20
"""From here on a fat32 has more sectors than it can count: mkdosfs makes a smaller one, and says nothing."""
LEAST_MOUNTED_MIB = {
    "/": 2048,
    "/boot": 256,
    "/usr": 1024,
    "/usr/share": 256,
    "/var": 512,
    "/var/cache": 128,
    "/var/lib": 256,
}
"""What a system of any kind writes there does not fit below these. Images have next to nothing in other folders."""
NO_FAT = ("home", "opt", "root", "srv", "tmp", "usr", "var")
"""Folders below / whose files have owners and links, which fat32 has not: unpacking an image there fails."""
ESP_OPTIONS = "umask=0077"


@dataclass(frozen=True)
class FileSystem:
    """A file system or swap on a device, and where it is mounted."""

    device: str
    type: str
    label: str = ""
    path: str = ""
    """Empty: it is not mounted."""
    options: str = "defaults"
    line: int | None = None
    block: Block | None = None

    @property
    def check_order(self) -> int:
        """When fsck looks at it at boot; 0: never. XFS does that by itself, and images have no program for vfat."""
        if self.type != "ext4":
            return 0
        return 1 if self.path == "/" else 2


def plan_file_systems(blocks: Blocks, *, is_uefi: bool) -> list[FileSystem]:
    """Return the file systems of a layout, a mounted one before those that are mounted below it."""
    planner = _Planner(blocks)
    file_systems = [fs for item in blocks.items.values() if isinstance(item, FormatItem) for fs in planner.format(item)]
    planner.check_root(file_systems)
    mounted = sorted((fs for fs in file_systems if fs.path), key=lambda fs: (fs.path.count("/"), fs.path))
    mounted.sort(key=lambda fs: fs.path != "/")
    others = [fs for fs in file_systems if not fs.path]
    return _allow_missing([*mounted, *others]) if is_uefi else [*mounted, *others]


def _allow_missing(file_systems: Sequence[FileSystem]) -> list[FileSystem]:
    """Return file systems with an ESP that may be missing at boot, if there is another that the machine boots from."""
    partitions = [fs for fs in file_systems if fs.type == "vfat" and fs.block is not None and fs.block.flag == "boot"]
    if len(partitions) < 2:
        return list(file_systems)
    # The boot does not wait for it then. How long the system goes on looking for it is left to the system: on a slow
    # machine a disk that is there may take its time.
    return [replace(fs, options=f"{fs.options},nofail") if fs.path == ESP_PATH else fs for fs in file_systems]


class _Planner:
    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._problems = blocks.problems
        self._mounts: dict[str, MountItem] = {}
        """The mount of each format, by the format's id."""
        paths: dict[str, str] = {}
        for item in blocks.items.values():
            if isinstance(item, MountItem):
                self._add_mount(item, paths)

    def _add_mount(self, item: MountItem, paths: dict[str, str]) -> None:
        file_system = self._blocks.items[item.format.id]
        reason = ""
        if not isinstance(file_system, FormatItem):
            reason = f"{item.format.id} is no format"
        elif item.format.id in self._mounts:
            reason = f"{item.format.id} is mounted by {self._mounts[item.format.id].id} already"
        elif (file_system.file_system == "swap") != (item.path == ""):
            reason = "a mount has a path, and only swap has none"
        elif item.path and item.path in paths:
            reason = f"{item.path} is the mount point of {paths[item.path]} already"
        elif item.path == ESP_PATH and file_system.file_system != "vfat":
            reason = f"{ESP_PATH} is fat32: firmware reads nothing else"
        elif item.path.startswith(f"{ESP_PATH}/"):
            reason = f"nothing is mounted below {ESP_PATH}, which firmware and loader have for themselves"
        elif item.path == "/" and file_system.file_system not in ("ext4", "xfs"):
            reason = "/ is ext4 or xfs"
        elif file_system.file_system == "vfat" and item.path.split("/")[1] in NO_FAT:
            reason = f"{item.path} is ext4 or xfs: fat32 has no owners and no links, and the system's files need them"
        if reason:
            self._problems.add(f"{item.id}: {reason}", item.line)
            return
        self._mounts[item.format.id] = item
        paths[item.path] = item.id

    def format(self, item: FormatItem) -> list[FileSystem]:
        """Return the file systems that a format makes: one, or one on each of several disks."""
        references: tuple[Reference, ...] = (item.volume,)
        on = self._blocks.use(item, references, DiskItem, PartitionItem, RaidItem, VolumeItem)
        mount = self._mounts.get(item.id)
        replicated = item.file_system == "vfat" and all(block.flag == "boot" for block in on)
        if len(on) > 1 and mount is not None and not (replicated and mount.path == ESP_PATH):
            self._problems.add(f"{item.id}: {item.volume.id} is several devices, and one is mounted", item.line)
            return []
        made = []
        for order, block in enumerate(on):
            path = mount.path if mount is not None and order == 0 else ""
            least, what = max((LEAST_MIB[item.file_system], item.file_system), (LEAST_MOUNTED_MIB.get(path, 0), path))
            if block.mib < least:
                self._problems.add(f"{item.id}: {what} needs {least} MiB, and has {block.mib} MiB", item.line)
            elif item.file_system == "vfat" and block.mib >= FAT_END_MIB:
                self._problems.add(f"{item.id}: fat32 ends below 2 TiB, and this is of {block.mib} MiB", item.line)
            options = self._options(item, mount)
            made.append(FileSystem(block.device, item.file_system, item.label, path, options, item.line, block))
        return made

    def _options(self, item: FormatItem, mount: MountItem | None) -> str:
        if mount is not None and mount.options:
            return mount.options
        if item.file_system == "swap":
            return "sw"
        return ESP_OPTIONS if mount is not None and mount.path == ESP_PATH else "defaults"

    def check_root(self, file_systems: Sequence[FileSystem]) -> None:
        if not any(fs.path == "/" for fs in file_systems) and not self._problems.listed:
            self._problems.add("nothing is mounted at /: add a format of ext4 or xfs, and a mount with path: /")
