"""Whatever is written as a layout: it is refused, or comes to steps that never exceed the disks."""

from collections import defaultdict
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.installs.storage.scene import EQUAL, EVERYTHING, GIB, request

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.storage.part import lay_out_disks

MIB = 1 << 20
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["storage", "config", "id", "type"]), inner),
)
SIZES = st.sampled_from([None, -1, "1M", "512M", "2G", "3000M", "5G", "9G", "1T", "0.5M", 1, 7, "x"])
IDS = st.sampled_from(["d0", "d1", "p0", "p1", "p2", "p3", "a0", "a1", "g0", "v0", "v1", "f0", "f1", "f2"])
DEVICES = st.lists(IDS, min_size=1, max_size=4)


def item(kind: str, names: list[str], **values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {"id": st.sampled_from(names), "type": st.just(kind), **values}
    return st.fixed_dictionaries(fields).map(
        lambda made: {key: value for key, value in made.items() if value is not None}
    )


SELECTORS = st.sampled_from(
    [
        {"serial": "LAB0"},
        {"serial": "LAB1"},
        {"match": "rest"},
        {"match": {"size": ">=1G"}, "count": 2},
        {"match": {}, "count": 4},
        {"match": {"size": "smallest"}},
    ]
)
DISKS = st.tuples(item("disk", ["d0", "d1"], ptable=st.sampled_from([None, "gpt", "msdos"])), SELECTORS).map(
    lambda pair: pair[0] | pair[1]
)
ITEMS = st.one_of(
    DISKS,
    item(
        "partition",
        ["p0", "p1", "p2", "p3"],
        device=st.sampled_from(["d0", "d0", "d1", "a0"]),
        size=SIZES,
        flag=st.sampled_from([None, None, "boot", "bios_grub", "raid"]),
        number=st.sampled_from([None, None, 1, 5]),
    ),
    item(
        "raid",
        ["a0", "a1"],
        name=st.sampled_from(["x", "y"]),
        raidlevel=st.sampled_from([0, 1, 5, 6, 10]),
        devices=DEVICES,
    ),
    item("lvm_volgroup", ["g0", "a1"], name=st.sampled_from(["x", "y"]), devices=DEVICES),
    item("lvm_partition", ["v0", "v1"], name=st.sampled_from(["x", "y"]), volgroup=st.just("g0"), size=SIZES),
    item("format", ["f0", "f1", "f2"], fstype=st.sampled_from(["ext4", "xfs", "vfat", "swap"]), volume=IDS),
    item("mount", ["m0", "m1"], device=IDS, path=st.sampled_from(["/", "/", "/boot", "/boot/efi", "/srv", ""])),
)
DOCUMENTS = st.lists(ITEMS, min_size=1, max_size=14)
ROOT: list[dict[str, Any]] = [
    {"id": "d0", "type": "disk", "match": {}, "count": 4, "ptable": "gpt"},
    {"id": "p0", "type": "partition", "device": "d0", "size": "1M", "flag": "bios_grub"},
    {"id": "p1", "type": "partition", "device": "d0", "size": "4G"},
    {"id": "p2", "type": "partition", "device": "d0", "size": "512M", "flag": "boot"},
    {"id": "a0", "type": "raid", "name": "root", "raidlevel": 10, "devices": ["p1"]},
    {"id": "f0", "type": "format", "fstype": "ext4", "volume": "a0"},
    {"id": "m0", "type": "mount", "device": "f0", "path": "/"},
]
"""A layout that fits, to which more is added."""


@given(JSON)
def test_whatever_is_written_is_read_without_an_error(wanted: Json) -> None:
    part = lay_out_disks(request(wanted))
    assert bool(part.config) is not bool(part.problems)


@given(st.text(alphabet=st.sampled_from([*set(EVERYTHING)]), max_size=200))
def test_whatever_text_is_written_is_read_without_an_error(text: str) -> None:
    part = lay_out_disks(request(text))
    assert bool(part.config) is not bool(part.problems)


@given(DOCUMENTS, st.booleans(), st.sampled_from(["bios", "uefi"]))
def test_no_step_exceeds_the_disks(extra: list[dict[str, Any]], fitting: bool, firmware: str) -> None:
    declared = {made["id"]: made for made in ([*ROOT, *extra] if not fitting else [*extra, *ROOT])}
    document: Json = {"version": 1, "config": [*declared.values()]}
    part = lay_out_disks(request(document, EQUAL, firmware))
    assert bool(part.config) is not bool(part.problems)
    as_text = lay_out_disks(request(yaml.safe_dump(document), EQUAL, firmware))
    assert as_text.config == part.config
    if part.config:
        check_steps(part.config["storage"])


def check_steps(storage: Any) -> None:
    """Follow the steps as the installer takes them, and add up what each device holds."""
    room = {f"disk{number}": disk["bytes"] // MIB for number, disk in enumerate(storage["disks"])}
    taken: set[str] = set()
    extents: dict[str, int] = defaultdict(int)

    def take(device: str) -> int:
        assert device not in taken, f"{device} is used twice"
        taken.add(device)
        return int(room[device])

    for step in storage["build"]:
        verb, *words = step.split(" ")
        match verb:
            case "table":
                end = 1
                disk = take(words[0])
                for number, start, mib, _ in (word.split(":") for word in words[2:]):
                    assert int(start) >= end, "partitions do not overlap"
                    end = int(start) + int(mib)
                    room[f"{words[0]}p{number}"] = int(mib)
                assert end <= disk - 1, "the end of the disk is for the second GPT"
            case "array":
                members = [take(device) for device in words[4:]]
                assert len({device.partition("p")[0] for device in words[4:]}) == len(members)
                assert int(words[3]) + 16 < min(members)
                spared = {"0": 0, "1": len(members) - 1, "5": 1, "6": 2, "10": len(members) // 2}[words[2]]
                room[f"md{words[0]}"] = int(words[3]) * (len(members) - spared)
            case "group":
                extents[words[0]] = sum((take(device) - 1) // 4 for device in words[1:])
            case "volume":
                extents[words[0]] -= int(words[2])
                assert extents[words[0]] >= 0
                room[f"{words[0]}/{words[1]}"] = int(words[2]) * 4
    paths = []
    for step in storage["file_systems"]:
        verb, device, *words = step.split(" ")
        if verb == "format":
            assert take(device) >= 8
        if verb == "mount":
            assert device in taken, "it is formatted before it is mounted"
            paths.append(words[0])
    assert paths[0] == "/"
    assert room[next(step.split(" ")[1] for step in storage["file_systems"] if " / " in step)] >= 2 * GIB // MIB
    assert len(set(paths)) == len(paths)


def test_the_golden_document_passes_the_same_check() -> None:
    part = lay_out_disks(request({"version": 1, "config": [*ROOT]}))
    assert part.problems == ()
    check_steps(part.config["storage"])
