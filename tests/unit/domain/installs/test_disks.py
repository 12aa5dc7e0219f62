"""The disks that a machine reports, whatever it reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.disks import MOST_DISKS, DiskContent, read_disks, show_bytes
from rackwright.domain.installs.wipes import holds_data

DATA: Json = {
    "name": "wwn-0x5000c500",
    "device": "sda",
    "bytes": 4_000_787_030_016,
    "serial": "ZC1",
    "bus": "scsi",
    "rotational": True,
    "fingerprint": "ab12",
    "contents": [
        {"device": "sda", "type": "gpt"},
        {"device": "sda1", "type": "ext4", "label": "data", "bytes": 4 * 10**12, "mounted_on": "/srv", "mounted_at": 1},
    ],
}


def test_a_disk_is_read_with_what_is_on_it() -> None:
    [disk] = read_disks([DATA])
    assert (disk.name, disk.device, disk.serial, disk.rotational) == ("wwn-0x5000c500", "sda", "ZC1", True)
    assert [str(content) for content in disk.contents] == [
        "sda gpt",
        "sda1 ext4 “data” 4.0 TB, last mounted on /srv 1970-01-01",
    ]


def test_a_disk_that_is_named_twice_counts_once_and_there_are_only_so_many() -> None:
    assert len(read_disks([DATA, DATA])) == 1
    assert len(read_disks([{"name": f"d{number}"} for number in range(1000)])) == MOST_DISKS


@pytest.mark.parametrize("reported", [None, "sda", 7, {}, [None], [{"name": 7}], [{"name": ""}], [{"serial": "x"}]])
def test_what_is_no_disk_is_left_out(reported: Json) -> None:
    assert read_disks(reported) == ()


def test_nothing_that_steers_a_terminal_is_kept() -> None:
    [disk] = read_disks([{"name": "a\x1b[2J\nb", "contents": [{"type": "ext4", "label": "x" * 5000}]}])
    assert disk.name == "a[2Jb"
    assert len(disk.contents[0].label) == 128


@pytest.mark.parametrize("content", [7, None, "ext4", {}, {"label": "pgdata"}, {"type": "\u202e"}, {"type": ["ext4"]}])
def test_content_that_cannot_be_read_is_no_sign_of_an_empty_disk(content: Json) -> None:
    """The installer compares fingerprints alone: what is taken to be empty here is wiped, and nobody is asked."""
    [disk] = read_disks([{"name": "sda", "fingerprint": "f", "contents": [content]}])
    assert "something unreadable" in str(disk.contents[0])
    assert holds_data(disk)
    [odd] = read_disks([{"name": "sda", "fingerprint": "f", "contents": {"0": content}}])
    assert holds_data(odd)


def test_sizes_are_shown_as_disks_are_sold() -> None:
    assert [show_bytes(size) for size in (512, 10**6, 8_589_934_592)] == ["512 bytes", "1.0 MB", "8.6 GB"]
    assert str(DiskContent("sda", "swap")) == "sda swap"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["name", "bytes", "contents", "type"]), inner),
)


@given(JSON)
def test_whatever_a_machine_reports_is_read_without_an_error(reported: Json) -> None:
    for disk in read_disks(reported):
        assert disk.name
        assert all(map(str, disk.contents))
