"""The disks of a node as people see them, and what a question says of them."""

from typing import Any

import pytest

from rackwright.cli.output.disk_lines import with_hardware
from rackwright.cli.output.lost_data import name_lost_data

SDA = {
    "name": "wwn-0x1",
    "device": "sda",
    "bytes": 2 * 10**12,
    "serial": "X1",
    "fingerprint": "f",
    "contents": [{"device": "sda1", "type": "ext4", "label": "pg\x1b[2J\u202edata", "bytes": 10**12}],
}


def test_each_disk_is_a_line_with_what_is_on_it() -> None:
    node = {"name": "n1", "discovery": {"disks": [SDA, {"name": "nvme0"}], "links": [{"name": "eth0"}], "serial": "S"}}
    shown = with_hardware(node)
    assert shown["disk wwn-0x1"] == "sda, 2.0 TB, serial X1: sda1 ext4 “pg[2Jdata” 1.0 TB"
    assert shown["disk nvme0"] == "what is on it is not known"
    assert "link eth0" in shown
    assert shown["discovery"] == {"serial": "S"}


def test_two_disks_of_one_name_are_told() -> None:
    disks = [SDA | {"device": f"nvme0n{number}"} for number in (1, 2)]
    assert with_hardware({"discovery": {"disks": disks}})["disk wwn-0x1"].endswith("; nvme0n2 have the same name")


@pytest.mark.parametrize("discovery", [None, 7, {}, {"disks": 7}, {"disks": [None, {"name": 7}]}])
def test_whatever_a_machine_reports_is_shown(discovery: Any) -> None:
    assert with_hardware({"name": "n1", "discovery": discovery})["discovery"] == discovery


def test_a_question_names_what_is_lost_and_fits_a_screen() -> None:
    contents = [f"sda{part} ext4 “{'x' * 500}”" for part in range(30)]
    wipes = [{"name": "sda", "known": True, "contents": contents}, {"name": "sdb", "known": False, "contents": []}]
    text = name_lost_data([{"node": "n1", "wipes": wipes}])
    assert text.startswith("sda0 ext4 “" + "x" * 79 + "… on sda of n1, sda1 ext4")
    assert text.endswith(", and 11 more")
    assert len(text) < 20 * 120
