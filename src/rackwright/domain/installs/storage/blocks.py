"""Working out the devices of a layout on chosen disks: partitions, arrays, groups and volumes, with their sizes.

All sizes are in MiB, to which every device is aligned, so that the sectors of a disk do not matter. What is worked out
is never more than there is: arrays and groups keep something for their own records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rackwright.domain.installs.disks import Disk
from rackwright.domain.installs.documents import Problems
from rackwright.domain.installs.storage.items import (
    MIB,
    TYPE_NAMES,
    DiskItem,
    GroupItem,
    Item,
    PartitionItem,
    RaidItem,
    Reference,
    VolumeItem,
)

FIRST_MIB = 1
"""Where the first partition begins; GRUB has what is before it on a disk without GPT."""
TAIL_MIB = 1
"""At the end of a disk, for the second copy of a GPT."""
DOS_MOST_MIB = 2 << 20
MOST_PARTITIONS = {"dos": 4, "gpt": 128}
MEMBER_RESERVE_MIB = 16
"""At the beginning of an array's member: its superblock, its bitmap, and room to reshape it."""
LEAST_MEMBER_MIB = 64
EXTENT_MIB = 4
VOLUME_RESERVE_MIB = 1
"""At the beginning of a physical volume: LVM's own records."""
LONGEST_MAPPED = 127
"""Characters of a volume's name in /dev/mapper: group and volume, with each '-' in them written twice."""
LEAST_MEMBERS = {0: 2, 1: 2, 5: 3, 6: 4, 10: 4}


@dataclass(frozen=True)
class Block:
    """A device that holds something: a disk, a partition, an array or a volume."""

    device: str
    """As the steps call it: `disk0`, `disk0p2`, `md0`, `system/root`."""
    mib: int
    disks: frozenset[int]
    """The numbers of the disks that it is on."""
    flag: str = ""
    label: str = ""
    """Of a partition: the kind of the table that it is in."""


@dataclass(frozen=True)
class Partition:
    number: int
    start: int
    mib: int
    flag: str


@dataclass(frozen=True)
class Table:
    """The partition table of a disk."""

    disk: int
    label: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Array:
    minor: int
    name: str
    level: int
    member_mib: int
    """What is used of each member."""
    members: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    name: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Volume:
    group: str
    name: str
    extents: int


@dataclass
class Blocks:
    """What a layout comes to on its disks, worked out item by item."""

    items: Mapping[str, Item]
    chosen: Mapping[str, tuple[Disk, ...]]
    disks: Sequence[Disk]
    problems: Problems
    tables: list[Table] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    blocks: dict[str, tuple[Block, ...]] = field(default_factory=dict)
    """The devices of an item, by its id."""
    used: dict[str, str] = field(default_factory=dict)
    """The item that uses a device, by the device."""
    extents_left: dict[str, int] = field(default_factory=dict)

    def work_out(self) -> None:
        """Work out every item, those first that others stand on."""
        for partition in self._all(PartitionItem):
            self._check_partition(partition)
        for disk_item in self._all(DiskItem):
            self._lay_out_disks(disk_item)
        for raid in self._all(RaidItem):
            self._build_array(raid)
        for group in self._all(GroupItem):
            self._build_group(group)
        for volume in self._all(VolumeItem):
            self._build_volume(volume)

    def use(self, item: Item, references: Sequence[Reference], *kinds: type[Item]) -> list[Block]:
        """Return the devices that an item stands on, and note that they are used; none of them may be used twice."""
        blocks: list[Block] = []
        for reference in references:
            referred = self.items[reference.id]
            if not isinstance(referred, kinds):
                names = ", ".join(TYPE_NAMES[kind] for kind in kinds)
                kind = TYPE_NAMES[type(referred)]
                self.problems.add(f"{item.id} stands on {reference.id}, a {kind}; it is to be {names}", reference.line)
                continue
            if isinstance(referred, DiskItem) and not self.blocks[reference.id]:
                self.problems.add(
                    f"{item.id}: {reference.id} has a partition table; name its partitions", reference.line
                )
            for block in self.blocks.get(reference.id, ()):
                if block.flag == "bios_grub":
                    self.problems.add(
                        f"{item.id}: GRUB has {reference.id}, with flag bios_grub, for itself, and overwrites it",
                        reference.line or item.line,
                    )
                    break  # said once, not for each disk
                if block.device in self.used:
                    other = self.used[block.device]
                    self.problems.add(
                        f"{item.id}: {reference.id} is used by {other} already", reference.line or item.line
                    )
                    continue
                self.used[block.device] = item.id
                blocks.append(block)
        return blocks

    def _all(self, kind: type[Item]) -> Iterator[Item]:
        return (item for item in self.items.values() if isinstance(item, kind))

    def _check_partition(self, item: Item) -> None:
        assert isinstance(item, PartitionItem)
        referred = self.items[item.device.id]
        if not isinstance(referred, DiskItem):
            kind = TYPE_NAMES[type(referred)]
            self.problems.add(f"{item.id} stands on {referred.id}, a {kind}; it is to be disk", item.device.line)

    def _lay_out_disks(self, item: Item) -> None:
        assert isinstance(item, DiskItem)
        partitions = [
            other for other in self.items.values() if isinstance(other, PartitionItem) and other.device.id == item.id
        ]
        label = item.label or ("gpt" if partitions else "")
        whole: list[Block] = []
        for disk in self.chosen.get(item.id, ()):
            number = self.disks.index(disk)
            mib = (disk.bytes or 0) // MIB
            if label:
                self._lay_out_partitions(item, label, number, mib, partitions)
            else:
                whole.append(Block(f"disk{number}", mib, frozenset({number})))
        self.blocks[item.id] = tuple(whole)

    def _lay_out_partitions(
        self, item: DiskItem, label: str, disk: int, disk_mib: int, declared: Sequence[PartitionItem]
    ) -> None:
        name = self.disks[disk].name
        end = disk_mib - TAIL_MIB
        if label == "dos":
            end = min(end, DOS_MOST_MIB)
        if len(declared) > MOST_PARTITIONS[label]:
            self.problems.add(
                f"{item.id}: a table of {label} has at most {MOST_PARTITIONS[label]} partitions", item.line
            )
            return
        position, laid_out = FIRST_MIB, dict[int, Partition]()
        for order, partition in enumerate(declared):
            mib = end - position if partition.size is None else -(-partition.size // MIB)
            number = partition.number or max(laid_out, default=0) + 1
            reason = ""
            if partition.size is None and order < len(declared) - 1:
                reason = "only the last partition of a disk takes what is left; say its size"
            elif number in laid_out or number > MOST_PARTITIONS[label]:
                reason = f"number {number} is taken, or more than a table of {label} has"
            elif mib < 1 or position + mib > end:
                reason = f"it does not fit on {name}: {max(end - position, 0)} MiB of {disk_mib} MiB are left there" + (
                    ", and a table of dos reaches no further than 2 TiB" if end == DOS_MOST_MIB else ""
                )
            elif partition.flag in ("bios_grub", "boot") and not _flag_fits(partition.flag, label):
                reason = f"flag {partition.flag} is for a table of gpt"
            if reason:
                self.problems.add(f"{partition.id}: {reason}", partition.line or item.line)
                return
            laid_out[number] = Partition(number, position, mib, partition.flag)
            block = Block(f"disk{disk}p{number}", mib, frozenset({disk}), partition.flag, label)
            self.blocks[partition.id] = (*self.blocks.get(partition.id, ()), block)
            position += mib
        self.tables.append(Table(disk, label, tuple(laid_out.values())))

    def _build_array(self, item: Item) -> None:
        assert isinstance(item, RaidItem)
        refused = len(self.problems.listed)
        members = self.use(item, item.devices, DiskItem, PartitionItem)
        if len(self.problems.listed) > refused:
            return
        least = LEAST_MEMBERS[item.level]
        usable = min((member.mib for member in members), default=0) - MEMBER_RESERVE_MIB - 1
        if len(members) < least:
            self.problems.add(f"{item.id}: raid{item.level} needs {least} devices, and has {len(members)}", item.line)
        elif len(frozenset().union(*(member.disks for member in members))) < len(members):
            self.problems.add(f"{item.id}: two of its devices are on the same disk", item.line)
        elif mixed := self._mixed_sectors(members):
            self.problems.add(f"{item.id}: {mixed}", item.line)
        elif usable < LEAST_MEMBER_MIB:
            self.problems.add(f"{item.id}: a device of an array has at least {LEAST_MEMBER_MIB} MiB", item.line)
        elif any(array.name == item.name for array in self.arrays):
            self.problems.add(f"{item.id}: there is another array {item.name}", item.line)
        else:
            minor, count = len(self.arrays), len(members)
            data_mib = {0: count * usable, 5: (count - 1) * usable, 6: (count - 2) * usable, 10: count * usable // 2}
            devices = tuple(member.device for member in members)
            self.arrays.append(Array(minor, item.name, item.level, usable, devices))
            disks = frozenset().union(*(member.disks for member in members))
            self.blocks[item.id] = (Block(f"md{minor}", data_mib.get(item.level, usable), disks),)

    def _build_group(self, item: Item) -> None:
        assert isinstance(item, GroupItem)
        refused = len(self.problems.listed)
        members = self.use(item, item.devices, DiskItem, PartitionItem, RaidItem)
        if len(self.problems.listed) > refused:
            return
        extents = sum(max(0, (member.mib - VOLUME_RESERVE_MIB) // EXTENT_MIB - 1) for member in members)
        if item.name in self.extents_left:
            self.problems.add(f"{item.id}: there is another volume group {item.name}", item.line)
        elif mixed := self._mixed_sectors(members):
            self.problems.add(f"{item.id}: {mixed}", item.line)
        elif extents < 1:
            self.problems.add(f"{item.id}: a volume group needs a device, of {3 * EXTENT_MIB} MiB at least", item.line)
        else:
            self.groups.append(Group(item.name, tuple(member.device for member in members)))
            self.extents_left[item.name] = extents
            disks = frozenset().union(*(member.disks for member in members))
            self.blocks[item.id] = (Block(item.name, extents * EXTENT_MIB, disks),)

    def _mixed_sectors(self, members: Sequence[Block]) -> str:
        """Return why devices do not go together, or nothing: file systems and LVM want sectors of one size."""
        disks = [self.disks[number] for number in sorted({disk for member in members for disk in member.disks})]
        sizes = {disk.sector_bytes: disk.name for disk in disks if disk.sector_bytes is not None}
        if len(sizes) < 2:
            return ""
        named = ", ".join(f"{name} has {size} bytes" for size, name in sorted(sizes.items()))
        return f"its disks have sectors of different sizes ({named}); choose disks that are alike"

    def _build_volume(self, item: Item) -> None:
        assert isinstance(item, VolumeItem)
        group = self.items[item.group.id]
        if not isinstance(group, GroupItem):
            self.problems.add(f"{item.id}: {item.group.id} is no lvm_volgroup", item.group.line or item.line)
            return
        if group.id not in self.blocks:
            return
        left = self.extents_left[group.name]
        extents = left if item.size is None else -(-item.size // (EXTENT_MIB * MIB))
        if any(volume.group == group.name and volume.name == item.name for volume in self.volumes):
            self.problems.add(f"{item.id}: there is another volume {item.name} in {group.name}", item.line)
        elif len(group.name.replace("-", "--")) + 1 + len(item.name.replace("-", "--")) > LONGEST_MAPPED:
            self.problems.add(
                f"{item.id}: {group.name}/{item.name} is longer than the {LONGEST_MAPPED - 1} characters that LVM has"
                " for both names, of which each '-' takes two",
                item.line,
            )
        elif extents < 1 or extents > left:
            free = f"{left * EXTENT_MIB} MiB of {group.name} are left"
            self.problems.add(f"{item.id}: it does not fit: {free}", item.line)
        else:
            self.extents_left[group.name] = left - extents
            self.volumes.append(Volume(group.name, item.name, extents))
            [block] = self.blocks[group.id]
            self.blocks[item.id] = (Block(f"{group.name}/{item.name}", extents * EXTENT_MIB, block.disks),)


def _flag_fits(flag: str, label: str) -> bool:
    """Return whether a partition can have a flag: in a table of dos, boot means active."""
    return label == "gpt" or flag == "boot"
