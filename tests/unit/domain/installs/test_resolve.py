"""What an install comes to on a machine."""

import base64

import pytest

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs import resolve
from rackwright.domain.installs.request import InstallPart, InstallRequest, Problem, RootFile
from rackwright.domain.installs.resolve import resolve_install

DISKS: JsonObject = {"disks": [{"name": name, "bytes": 8 << 30} for name in ("sda", "sdb")]}


def test_the_first_disk_is_taken_unless_one_is_chosen() -> None:
    assert [disk.name for disk in resolve_install(InstallRequest("n1", facts=DISKS)).wiped] == ["sda"]
    assert [disk.name for disk in resolve_install(InstallRequest("n1", {"disk": "sdb"}, DISKS)).wiped] == ["sdb"]
    assert resolve_install(InstallRequest("n1", facts={"disks": "none"})).problems


def test_kernel_arguments_are_told_where_people_chose_some() -> None:
    assert resolve_install(InstallRequest("n1", {"kernel_arguments": "quiet"})).config["kernel_arguments"] == "quiet"
    assert "kernel_arguments" not in resolve_install(InstallRequest("n1", {"kernel_arguments": ""})).config


def test_parts_are_put_together_with_their_files_and_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    first = InstallPart({"a": 1}, (RootFile("/etc/motd", "hä\n", 0o600),))
    second = InstallPart({"b": 2}, problems=(Problem("provisioner-network", "no link eth7", 3),))
    monkeypatch.setattr(resolve, "PARTS", (lambda _: first, lambda _: second))
    resolved = resolve_install(InstallRequest("n1"))
    content = base64.b64encode("hä\n".encode()).decode()
    assert resolved.config == {
        "a": 1,
        "b": 2,
        "files": [{"path": "/etc/motd", "mode": "0600", "base64": content}],
    }
    assert [str(problem) for problem in resolved.problems] == ["provisioner-network, line 3: no link eth7"]
