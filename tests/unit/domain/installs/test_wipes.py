"""What installs wipe: what a person confirms, and what is refused because nobody did."""

from dataclasses import replace

import pytest

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.disks import Disk, DiskContent, read_disks
from rackwright.domain.installs.planned_installs import PlannedInstall, missing_for_install
from rackwright.domain.installs.request import InstallRequest, Problem
from rackwright.domain.installs.resolve import resolve_install
from rackwright.domain.installs.wipes import (
    LONGEST_DESCRIPTION,
    InstallWipes,
    blocking_problems,
    carry_confirmation,
    confirmed_fingerprints,
    describe_disk,
    digest_wipes,
    disks_with_data,
    find_unconfirmed,
    name_data,
)

PGDATA = DiskContent("sda1", "ext4", "pgdata", "u-1", 20 * 10**9, mounted_on="/srv", mounted_at=1767225600)
SDA = Disk("wwn-0x1", "sda", 2 * 10**12, "X1", contents=(PGDATA,), fingerprint="f1")
EMPTY = Disk("wwn-0x2", "sdb", 2 * 10**12, "X2", fingerprint="f2")
UNKNOWN = Disk("wwn-0x3", "sdc")


def test_a_disk_is_described_by_size_serial_and_what_is_on_it() -> None:
    assert describe_disk(SDA) == "2.0 TB, serial X1: sda1 ext4 “pgdata” 20.0 GB, last mounted on /srv 2026-01-01"
    assert describe_disk(EMPTY) == "2.0 TB, serial X2: empty"
    assert describe_disk(UNKNOWN) == "what is on it is not known"
    many = replace(SDA, contents=(PGDATA,) * 100)
    assert len(describe_disk(many)) == LONGEST_DESCRIPTION + 3


def test_the_installer_is_told_what_was_planned_of_each_disk_once() -> None:
    disk: Json = {
        "name": "vda",
        "bytes": 8 << 30,
        "serial": "X",
        "fingerprint": "f",
        "contents": [{"device": "vda", "type": "dos"}],
    }
    config = resolve_install(InstallRequest("n1", facts={"disks": [disk, {"name": "vdb"}]})).config
    assert config["wipes"] == [{"name": "vda", "fingerprint": "f", "serial": "X", "text": "8.6 GB, serial X: vda dos"}]
    assert "wipes" not in resolve_install(InstallRequest("n1")).config


@pytest.mark.parametrize(
    "other",
    [
        replace(SDA, fingerprint="f9"),
        replace(SDA, serial="X9"),
        replace(SDA, name="wwn-0x9"),
        replace(SDA, contents=(replace(PGDATA, label="other"),)),
        replace(SDA, contents=()),
    ],
)
def test_a_digest_is_another_where_a_disk_or_what_is_on_it_is_another(other: Disk) -> None:
    assert _digest(SDA) != _digest(other)


def test_a_digest_stays_when_a_file_system_was_mounted_or_the_kernel_names_the_disk_anew() -> None:
    mounted = replace(PGDATA, mounted_on="/mnt", mounted_at=1767999999)
    assert _digest(SDA) == _digest(replace(SDA, device="sdq", contents=(mounted,)))


def test_a_digest_does_not_tell_in_which_order_disks_and_what_is_on_them_were_found() -> None:
    full = replace(SDA, contents=(PGDATA, DiskContent("sda", "gpt")))
    installs = [InstallWipes("n1", 7, (full, EMPTY)), InstallWipes("n2", 8, (UNKNOWN,))]
    turned = [installs[1], InstallWipes("n1", 7, (EMPTY, replace(full, contents=full.contents[::-1])))]
    assert digest_wipes("d", installs) == digest_wipes("d", turned)


@pytest.mark.parametrize(
    ("os", "settings", "firmware"),
    [
        ("debian-13", {"storage": "flat"}, "bios"),
        ("debian-12", {"storage": "lvm"}, "bios"),
        ("debian-12", {"storage": "flat", "disk": "sda"}, "bios"),
        ("debian-12", {"storage": "flat", "kernel_arguments": "quiet"}, "bios"),
        ("debian-12", {"storage": "flat", "network": "network: {version: 2}"}, "bios"),
        ("debian-12", {"storage": "flat", "user_data": "#!/bin/sh\n"}, "bios"),
        ("debian-12", {"storage": "flat", "meta_data": {"rack": 1}}, "bios"),
        ("debian-12", {"storage": "flat"}, "uefi"),
    ],
)
def test_a_digest_is_another_where_another_system_or_layout_comes_there(
    os: str, settings: dict[str, Json], firmware: str
) -> None:
    def digest(os: str, settings: dict[str, Json], firmware: str) -> str:
        disks: list[Json] = [{"name": "sda", "bytes": 8 << 30, "fingerprint": "f"}]
        request = InstallRequest("n1", settings, {"disks": disks, "firmware": {"mode": firmware}})
        install = PlannedInstall("n1", os, None, "192.0.2.7", True, True, request)
        assert [disk.name for disk in install.wipes.disks] == ["sda"]
        return digest_wipes("d", [install.wipes])

    assert digest(os, settings, firmware) != digest("debian-12", {"storage": "flat"}, "bios")
    turned = dict(reversed([*settings.items()]))
    assert digest(os, settings, firmware) == digest(os, turned, firmware)


def test_a_digest_covers_problems_and_is_the_plans_own_without_installs() -> None:
    wipes = InstallWipes("n1", 7, (SDA,))
    assert digest_wipes("d", [wipes]) != digest_wipes("d", [replace(wipes, problems=(Problem("a", "b"),))])
    assert digest_wipes("d", []) == "d"


def test_only_data_that_was_confirmed_as_it_is_now_may_be_lost() -> None:
    confirmed = confirmed_fingerprints((SDA, EMPTY, UNKNOWN))
    assert confirmed == {SDA.name: "f1", EMPTY.name: "f2"}, "nobody confirms what is not known"
    assert find_unconfirmed((SDA, EMPTY, UNKNOWN), confirmed) == ()
    assert find_unconfirmed((EMPTY, UNKNOWN), {}) == (), "the installer looks at the unknown one"
    assert find_unconfirmed((SDA,), {}) == (SDA,)
    filled = replace(EMPTY, contents=(PGDATA,), fingerprint="f3")
    assert find_unconfirmed((filled,), confirmed) == (filled,)


def test_what_an_installer_left_may_be_lost_again_on_the_disks_that_it_was_to_wipe_alone() -> None:
    wiped: Json = [{"name": "vda"}, "x", {"name": 7}]
    left: Json = [{"name": "vda", "fingerprint": "new"}, {"name": "vdb", "fingerprint": "b2"}, 5]
    assert carry_confirmation(wiped, left, {"vda": "old", "vdb": "b1"}) == {"vda": "new", "vdb": "b1"}
    assert carry_confirmation("x", left, {"vda": "old"}) == {"vda": "old"}
    assert carry_confirmation(wiped, None, {"vda": "old"}) == {"vda": "old"}


def test_data_is_named_with_its_node_and_a_long_list_is_cut() -> None:
    wipes = [InstallWipes(f"n{number}", number, (SDA, EMPTY)) for number in range(8)]
    with_data = disks_with_data(wipes)
    assert [node for node, _ in with_data] == [f"n{number}" for number in range(8)]
    assert name_data(with_data).startswith("n0: wwn-0x1 (2.0 TB, serial X1: sda1 ext4 “pgdata”")
    assert name_data(with_data).endswith(", and 3 more")


def test_what_time_may_mend_blocks_no_commit() -> None:
    wrong, waits = Problem("provisioner-network", "no such key", 3), Problem("provisioner-network", "x", waits=True)
    assert blocking_problems([InstallWipes("n1", 1, (), (waits, wrong))]) == [("n1", wrong)]


def test_a_mistake_about_disks_waits_until_disks_are_known() -> None:
    install = PlannedInstall("n1", "debian-12", None, "192.0.2.7", True, True, InstallRequest("n1"))
    resolved = replace(
        install.resolved, problems=(Problem("provisioner-storage", "no disk"), Problem("other", "wrong"))
    )
    install.__dict__["resolved"] = resolved
    assert [problem.waits for problem in install.wipes.problems] == [True, False]
    known = replace(install, request=InstallRequest("n1", facts={"disks": [{"name": "sda", "bytes": 8 << 30}]}))
    known.__dict__["resolved"] = resolved
    assert [problem.waits for problem in known.wipes.problems] == [False, False]


def test_a_plan_tells_problems_and_disks_of_which_nothing_is_known() -> None:
    request = InstallRequest("n1", {"network": "not: [yaml"}, {"disks": [{"name": "sda", "bytes": 8 << 30}]})
    install = PlannedInstall("n1", "debian-12", None, "192.0.2.7", True, True, request)
    problem, unknown = missing_for_install(install, None)
    assert problem.startswith("provisioner-network, line ")
    assert unknown.startswith("what is on sda is not known")


def _digest(disk: Disk) -> str:
    return digest_wipes("plan", [InstallWipes("n1", 7, (disk,))])


def test_disks_are_read_with_their_fingerprints() -> None:
    [disk] = read_disks([{"name": "sda", "fingerprint": "f"}])
    assert disk.fingerprint == "f"
