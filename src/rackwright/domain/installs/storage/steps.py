"""Rendering a resolved layout as the steps that the installer takes, one a line, in words of harmless characters.

table DISK gpt|dos NUMBER:START:SIZE:KIND ...      (MiB)
array MINOR NAME LEVEL SIZE DEVICE ...             (MiB of each member)
group NAME DEVICE ...
volume GROUP NAME EXTENTS                          (of 4 MiB)
format DEVICE TYPE LABEL|-
mount DEVICE PATH TYPE OPTIONS CHECK
swap DEVICE OPTIONS

A TYPE of `format` is that of the file system, or `ext4-extlinux`: an ext4 that extlinux can read.
"""

from collections.abc import Iterator

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.storage.blocks import Table
from rackwright.domain.installs.storage.files import FileSystem
from rackwright.domain.installs.storage.resolve import ResolvedStorage

KINDS = {"boot": {"gpt": "uefi", "dos": "active"}, "bios_grub": {"gpt": "bios"}}
"""The kind of a partition by its flag, where the two are called differently."""
NEEDS_TOOLS = ("array ", "group ")


def storage_config(storage: ResolvedStorage) -> JsonObject:
    """Return what the installer is told of the disks."""
    build, file_systems = list(_build_steps(storage)), list(_file_system_steps(storage))
    return {
        "firmware": "uefi" if storage.is_uefi else "bios",
        "disks": [{"name": disk.name, "bytes": disk.bytes} for disk in storage.disks],
        "build": [*build],
        "file_systems": [*file_systems],
        "loader": storage.boot.loader,
        "boot_disks": " ".join(f"disk{disk}" for disk in storage.boot.disks),
        "efi_partitions": " ".join(storage.boot.efi_partitions),
        "tools": storage.boot.loader == "grub"
        or any(step.startswith(NEEDS_TOOLS) for step in build)
        or any(fs.type == "xfs" for fs in storage.file_systems),
    }


def _build_steps(storage: ResolvedStorage) -> Iterator[str]:
    for table in storage.tables:
        partitions = (f"{one.number}:{one.start}:{one.mib}:{_kind(one.flag, table)}" for one in table.partitions)
        yield " ".join([f"table disk{table.disk} {table.label}", *partitions])
    for array in storage.arrays:
        yield " ".join([f"array {array.minor} {array.name} {array.level} {array.member_mib}", *array.members])
    for group in storage.groups:
        yield " ".join([f"group {group.name}", *group.members])
    for volume in storage.volumes:
        yield f"volume {volume.group} {volume.name} {volume.extents}"


def _kind(flag: str, table: Table) -> str:
    if flag in KINDS:
        return KINDS[flag][table.label]
    return flag if flag in ("raid", "lvm", "swap") else "linux"


def _file_system_steps(storage: ResolvedStorage) -> Iterator[str]:
    for fs in storage.file_systems:
        yield f"format {fs.device} {_made_type(fs, storage)} {fs.label or '-'}"
    for fs in storage.file_systems:
        if fs.type == "swap":
            yield f"swap {fs.device} {fs.options}"
        elif fs.path:
            yield f"mount {fs.device} {fs.path} {fs.type} {fs.options} {fs.check_order}"


def _made_type(fs: FileSystem, storage: ResolvedStorage) -> str:
    """Return the type that a file system is made as. What extlinux cannot read is left out of the one it reads only.

    Others keep their checksums, and grow beyond the 16 TiB that 32-bit block numbers reach.
    """
    return "ext4-extlinux" if fs.device == storage.boot.read_by_extlinux else fs.type
