"""Reading a storage layout: the part of curtin's storage v1 that Rackwright has, with two extensions of its own.

The extensions: a disk is chosen by `match: {size, bus, rotational}`, and with `count` an item stands for several disks,
which all get the same. What curtin has and Rackwright has not is refused by name, so that nothing which somebody wrote
is silently left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rackwright.domain.barclamps.marked_values import MarkedValue
from rackwright.domain.catalogue import Json
from rackwright.domain.installs.documents import (
    BadValue,
    Problems,
    ValueReader,
    line_of,
    read_document,
    take_flag,
    take_number,
    take_word,
)
from rackwright.domain.installs.storage.items import (
    ATTRIB,
    DiskItem,
    DiskMatch,
    FormatItem,
    GroupItem,
    Item,
    MountItem,
    PartitionItem,
    RaidItem,
    Reference,
    VolumeItem,
)
from rackwright.domain.installs.storage.values import (
    take_bus,
    take_count,
    take_disk_name,
    take_group_name,
    take_id,
    take_label,
    take_lvm_name,
    take_match_size,
    take_options,
    take_path,
    take_raid_name,
    take_rest_or_size,
    take_serial,
)

MOST_ITEMS = 256
TYPES_REFUSED = {
    "bcache": "Rackwright makes no bcache",
    "zfs": "Rackwright makes no ZFS",
    "zpool": "Rackwright makes no ZFS",
    "dasd": "Rackwright has no mainframes",
    "dm_crypt": "Rackwright encrypts no disks",
    "nvme_controller": "Rackwright configures no NVMe controllers",
    "device": "there are no devices but disks, partitions, raid and lvm_partition",
}
KEYS_REFUSED = {
    "preserve": "is always false: an install keeps nothing that is on its disks",
    "extra_options": "is not taken: nothing is handed on to mkfs unread",
    "spare_devices": "is not known to Rackwright: add spares with mdadm on the installed system",
    "offset": "is not taken: partitions follow one another",
    "uuid": "is not taken: the installer makes one",
    "spec": "is not taken: what is mounted is a file system of this layout",
    "multipath": "is not known to Rackwright",
    "partition_type": "is not taken: say flag",
}
COMMON = frozenset({"id", "type", "preserve", "wipe"})
OWN_KEYS = {
    "disk": {"serial", "wwn", "name", "path", "match", "count", "ptable", "grub_device"},
    "partition": {"device", "size", "flag", "number"},
    "raid": {"name", "raidlevel", "devices", "metadata"},
    "lvm_volgroup": {"name", "devices"},
    "lvm_partition": {"name", "volgroup", "size"},
    "format": {"volume", "fstype", "label"},
    "mount": {"device", "path", "options"},
}
WIPES = ("superblock", "superblock-recursive", "pvremove")
FLAGS = ("boot", "bios_grub", "swap", "lvm", "raid", "home", "linux")
TABLES = {"gpt": "gpt", "msdos": "dos", "dos": "dos"}
LEVELS = {
    **{str(level): level for level in (0, 1, 5, 6, 10)},
    **{f"raid{level}": level for level in (0, 1, 5, 6, 10)},
    "stripe": 0,
    "mirror": 1,
}
FILE_SYSTEMS = {"ext4": "ext4", "xfs": "xfs", "swap": "swap", "vfat": "vfat", "fat32": "vfat", "fat": "vfat"}
LONGEST_LABELS = {"ext4": 16, "xfs": 12, "swap": 15, "vfat": 11}


def read_layout(value: Json) -> tuple[tuple[Item, ...], Problems]:
    """Return the items that a document declares, in its order, and what is wrong with it."""
    problems = Problems(ATTRIB)
    document = read_document(value, problems)
    return ((), problems) if document is None else (_DocumentReader(problems).read(document), problems)


@dataclass(frozen=True)
class _DocumentReader:
    problems: Problems

    @property
    def values(self) -> ValueReader:
        return ValueReader(self.problems)

    def read(self, document: MarkedValue) -> tuple[Item, ...]:
        top = self.values.mapping(document, "the document")
        if "storage" in top:
            self.values.refuse_others(top, {"storage"}, "beside storage")
            top = self.values.mapping(top["storage"], "storage")
        self.values.refuse_others(top, {"version", "config"}, "in storage")
        if "version" in top and top["version"].plain() != 1:
            self.problems.add("version is 1: this is the only one that Rackwright has", line_of(top["version"]))
        if "config" not in top:
            self.problems.add(
                "the document has no config: write storage: {version: 1, config: [...]}", line_of(document)
            )
            return ()
        listed = top["config"].value
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST_ITEMS:
            self.problems.add(f"config is a list of 1 to {MOST_ITEMS} items", line_of(top["config"]))
            return ()
        items: dict[str, Item] = {}
        for entry in listed:
            item = self._read_item(entry)
            if item is not None and item.id in items:
                self.problems.add(f"{item.id} is declared twice; the first is on line {items[item.id].line}", item.line)
            elif item is not None:
                items[item.id] = item
        return tuple(items.values())

    def _read_item(self, entry: MarkedValue) -> Item | None:
        body = self.values.mapping(entry, "an item of config")
        line = entry.line or None
        for key in ("id", "type"):
            if key not in body:
                self.problems.add(f"an item of config has its {key}", line)
                return None
        item_id = self.values.take(body, "id", take_id, "", "an item")
        kind = str(body["type"].plain())
        if kind not in OWN_KEYS:
            reason = TYPES_REFUSED.get(kind, f"there are {', '.join(OWN_KEYS)}")
            self.problems.add(f"type {kind[:40]!r}: {reason}", line_of(body["type"]))
            return None
        if not item_id:
            return None
        self._check_common(body, kind, item_id)
        return self._readers[kind](Item(item_id, line), body)

    @property
    def _readers(self) -> Mapping[str, Callable[[Item, Mapping[str, MarkedValue]], Item]]:
        return {
            "disk": self._read_disk,
            "partition": self._read_partition,
            "raid": self._read_raid,
            "lvm_volgroup": self._read_group,
            "lvm_partition": self._read_volume,
            "format": self._read_format,
            "mount": self._read_mount,
        }

    def _check_common(self, body: Mapping[str, MarkedValue], kind: str, item_id: str) -> None:
        for key in (key for key in body if key in KEYS_REFUSED):
            if key != "preserve" or body[key].plain() is not False:
                self.problems.add(f"{item_id}: {key} {KEYS_REFUSED[key]}", line_of(body[key]))
        self.values.refuse_others(body, COMMON | OWN_KEYS[kind], f"in {kind} {item_id}", KEYS_REFUSED.keys())
        self.values.take(body, "wipe", take_word(*WIPES), "", item_id)

    def _read_disk(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        selectors = body.keys() & {"serial", "wwn", "name", "path", "match"}
        if len(selectors) != 1:
            self.problems.add(f"{item.id}: a disk is chosen by one of serial, wwn, name, path or match", item.line)
        name = self.values.take(body, "name", take_disk_name, "", item.id)
        name = name or self.values.take(body, "path", take_disk_name, "", item.id)
        match, count = self._read_match(item, body)
        table = self.values.take(body, "ptable", take_word(*TABLES), "", item.id)
        return DiskItem(
            item.id,
            item.line,
            serial=self.values.take(body, "serial", take_serial, "", item.id),
            wwn=self.values.take(body, "wwn", take_serial, "", item.id),
            name=name,
            match=match,
            count=count,
            label=TABLES.get(table, ""),
            starts_bios=self.values.take(body, "grub_device", take_flag, False, item.id),
        )

    def _read_match(self, item: Item, body: Mapping[str, MarkedValue]) -> tuple[DiskMatch | None, int | None]:
        count = self.values.take(body, "count", take_count, 1, item.id)
        if "match" not in body:
            if "count" in body:
                self.problems.add(f"{item.id}: count goes with match", line_of(body["count"]))
            return None, 1
        if body["match"].plain() == "rest":
            if "count" in body and body["count"].plain() != "rest":
                self.problems.add(
                    f"{item.id}: match: rest stands for all that are left; write match: {{}} with a count",
                    line_of(body["count"]),
                )
            return DiskMatch(), None
        given = self.values.mapping(body["match"], f"{item.id}: match")
        self.values.refuse_others(given, {"size", "bus", "rotational"}, f"in match of {item.id}")
        match = self.values.take(given, "size", take_match_size, DiskMatch(), item.id)
        if match.extreme and count is None:
            self.problems.add(
                f"{item.id}: the {match.extreme} disks are as many as count says, and the rest is all of them",
                line_of(body["count"]),
            )
        return replace(
            match,
            bus=self.values.take(given, "bus", take_bus, "", item.id),
            rotational=self.values.take(given, "rotational", take_flag, None, item.id),
        ), count

    def _read_partition(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        return PartitionItem(
            item.id,
            item.line,
            device=self._reference(item, body, "device"),
            size=self.values.take(body, "size", take_rest_or_size, None, item.id),
            flag=self.values.take(body, "flag", take_word(*FLAGS), "", item.id),
            number=self.values.take(body, "number", take_number(1, 128), None, item.id),
        )

    def _read_raid(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        self.values.take(body, "metadata", take_word("default", "1.2"), "", item.id)
        self._require(item, body, "raidlevel")
        level = self.values.take(body, "raidlevel", take_level, 1, item.id)
        name = self.values.take(body, "name", take_raid_name, "", item.id) or item.id
        return RaidItem(
            item.id, item.line, devices=self._references(item, body), name=self._name(item, name), level=level
        )

    def _name(self, item: Item, name: str) -> str:
        """Return the name of an array, which may be its id."""
        try:
            return take_raid_name(name)
        except BadValue as error:
            self.problems.add(f"{item.id}: name: {name!r} {error}", item.line)
            return "array"

    def _read_group(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        self._require(item, body, "name")
        name = self.values.take(body, "name", take_group_name, "", item.id)
        return GroupItem(item.id, item.line, devices=self._references(item, body), name=name)

    def _read_volume(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        self._require(item, body, "name")
        return VolumeItem(
            item.id,
            item.line,
            group=self._reference(item, body, "volgroup"),
            name=self.values.take(body, "name", take_lvm_name, "", item.id),
            size=self.values.take(body, "size", take_rest_or_size, None, item.id),
        )

    def _read_format(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        self._require(item, body, "fstype")
        wanted = self.values.take(body, "fstype", take_word(*FILE_SYSTEMS), "ext4", item.id)
        label = self.values.take(body, "label", take_label, "", item.id)
        file_system = FILE_SYSTEMS[wanted]
        if len(label) > LONGEST_LABELS[file_system]:
            longest = LONGEST_LABELS[file_system]
            self.problems.add(
                f"{item.id}: a label of {file_system} has at most {longest} characters", line_of(body["label"])
            )
        return FormatItem(
            item.id, item.line, volume=self._reference(item, body, "volume"), file_system=file_system, label=label
        )

    def _read_mount(self, item: Item, body: Mapping[str, MarkedValue]) -> Item:
        path = ""
        if "path" in body and body["path"].plain() not in ("", "none", None):
            path = self.values.take(body, "path", take_path, "", item.id)
        options = self.values.take(body, "options", take_options, "", item.id)
        return MountItem(item.id, item.line, format=self._reference(item, body, "device"), path=path, options=options)

    def _require(self, item: Item, body: Mapping[str, MarkedValue], key: str) -> None:
        if key not in body:
            self.problems.add(f"{item.id}: it needs its {key}", item.line)

    def _reference(self, item: Item, body: Mapping[str, MarkedValue], key: str) -> Reference:
        self._require(item, body, key)
        referred = self.values.take(body, key, take_id, "", item.id)
        return Reference(referred, line_of(body[key]) if key in body else item.line)

    def _references(self, item: Item, body: Mapping[str, MarkedValue]) -> tuple[Reference, ...]:
        self._require(item, body, "devices")
        listed = self.values.items(body["devices"], f"{item.id}: devices") if "devices" in body else []
        taken = [(self.values.take({"devices": entry}, "devices", take_id, "", item.id), entry) for entry in listed]
        return tuple(Reference(referred, line_of(entry)) for referred, entry in taken if referred)


def take_level(value: Json) -> int:
    if isinstance(value, int | str) and not isinstance(value, bool) and str(value) in LEVELS:
        return LEVELS[str(value)]
    raise BadValue("is none of 0, 1, 5, 6 and 10")
