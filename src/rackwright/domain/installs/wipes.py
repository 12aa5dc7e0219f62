"""What installs wipe: who has to confirm it, and what exactly was confirmed. Pure.

A person confirms what is on a disk, not a disk. What was confirmed is kept by the disk's name and fingerprint, and
compared when the install begins, and by the installer itself before its first write.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.disks import Disk, read_disks, show_bytes
from rackwright.domain.installs.request import Problem

LONGEST_DESCRIPTION = 600
MOST_NAMED = 5
"""Disks that a refusal names."""


@dataclass(frozen=True)
class InstallWipes:
    """What one install would wipe, and why it cannot be done."""

    node: str
    node_role_id: int
    disks: tuple[Disk, ...]
    problems: tuple[Problem, ...] = ()
    choices: JsonObject = field(default_factory=dict)
    """What decides what is put on the disks in place of that."""


def holds_data(disk: Disk) -> bool:
    """Return whether something is on a disk that would be lost."""
    return bool(disk.contents)


def is_known(disk: Disk) -> bool:
    """Return whether it is known what is on a disk: an older sledgehammer does not tell."""
    return bool(disk.fingerprint)


def describe_disk(disk: Disk) -> str:
    """Return a disk for people, without its name: its size, its serial number, and what is on it."""
    facts = [] if disk.bytes is None else [show_bytes(disk.bytes)]
    if disk.serial:
        facts.append(f"serial {disk.serial}")
    text = "; ".join(map(str, disk.contents)) or ("empty" if is_known(disk) else "what is on it is not known")
    described = f"{', '.join(facts)}: {text}" if facts else text
    return described if len(described) <= LONGEST_DESCRIPTION else f"{described[:LONGEST_DESCRIPTION]}..."


def wipe_entries(disks: Iterable[Disk]) -> list[Json]:
    """Return the disks that are wiped as the installer is told of them."""
    return [
        {"name": disk.name, "fingerprint": disk.fingerprint, "serial": disk.serial, "text": describe_disk(disk)}
        for disk in disks
    ]


def digest_wipes(digest: str, wipes: Iterable[InstallWipes]) -> str:
    """Return a digest of a plan together with the disks that it wipes, what is on them, what comes there instead, and
    what it cannot do.

    When a file system was mounted last is not in it: a disk in use would have another digest at every look. Nor is the
    order in which a machine found its disks, or what is on one: it is another at every boot.
    """
    entries = sorted(
        [
            wiped.node_role_id,
            json.dumps(wiped.choices, sort_keys=True),
            sorted([disk.name, disk.serial, disk.fingerprint, _sort_contents(disk)] for disk in wiped.disks),
            sorted(str(problem) for problem in wiped.problems),
        ]
        for wiped in wipes
    )
    return hashlib.sha256(f"{digest} {json.dumps(entries)}".encode()).hexdigest() if entries else digest


def _sort_contents(disk: Disk) -> list[list[str]]:
    return sorted([part.type, part.label, part.uuid] for part in disk.contents)


def confirmed_fingerprints(disks: Iterable[Disk]) -> JsonObject:
    """Return what a person confirms with these disks: the fingerprint of what is on each, by the disk's name.

    Nobody can confirm what is not known: such a disk is left out.
    """
    return {disk.name: disk.fingerprint for disk in disks if is_known(disk)}


def find_unconfirmed(disks: Iterable[Disk], confirmed: Mapping[str, Json]) -> tuple[Disk, ...]:
    """Return the disks that hold data that nobody confirmed, or other data than was confirmed.

    A disk of which nothing is known is none of them: the installer looks, and writes to it only if it is empty.
    """
    return tuple(
        disk for disk in disks if is_known(disk) and holds_data(disk) and confirmed.get(disk.name) != disk.fingerprint
    )


def carry_confirmation(wiped: Json, reported: Json, confirmed: Mapping[str, Json]) -> JsonObject:
    """Return what is confirmed after an installer wrote to disks: what it left there holds no data of anybody.

    `wiped` is what the installer was told to wipe, `reported` are the disks as it left them.
    """
    names = {entry.get("name") for entry in wiped if isinstance(entry, dict)} if isinstance(wiped, list) else set()
    left = confirmed_fingerprints(disk for disk in read_disks(reported) if disk.name in names)
    return {**confirmed, **left}


def name_data(disks: Iterable[tuple[str, Disk]]) -> str:
    """Return disks with the data that is on them, each behind the node that it is in, for a refusal."""
    named = [f"{node}: {disk.name} ({describe_disk(disk)})" for node, disk in disks]
    more = f", and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return ", ".join(named[:MOST_NAMED]) + more


def disks_with_data(wipes: Sequence[InstallWipes]) -> list[tuple[str, Disk]]:
    """Return the disks with data that installs wipe, each with its node."""
    return [(wiped.node, disk) for wiped in wipes for disk in wiped.disks if holds_data(disk)]


def blocking_problems(wipes: Sequence[InstallWipes]) -> list[tuple[str, Problem]]:
    """Return the problems that no time mends, each with its node: what people wrote is wrong."""
    return [(wiped.node, problem) for wiped in wipes for problem in wiped.problems if not problem.waits]
