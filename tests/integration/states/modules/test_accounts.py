"""`user` and `group` with the real tools, on the account files of a folder of its own."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="accounts are root's")

HASH = "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g."


@pytest.fixture
def root(tmp_path: Path) -> Path:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (etc / "group").write_text("root:x:0:\nadm:x:4:\nstaff:x:50:\nops:x:1500:\n")
    (etc / "shadow").write_text("root:*:19000:0:99999:7:::\n")
    (etc / "gshadow").write_text("root:*::\nadm:!::\nstaff:!::\nops:!::\n")
    (tmp_path / "home").mkdir()
    return tmp_path


def line(root: Path, file: str, name: str) -> list[str]:
    rows = [line.split(":") for line in (root / "etc" / file).read_text().splitlines() if line.startswith(f"{name}:")]
    return rows[0] if rows else []


def test_present_adds_a_user_with_everything(root: Path) -> None:
    changes = (
        Run()
        .apply(
            "user.present",
            name="carol",
            uid=1234,
            gid="ops",
            groups=["adm", "staff"],
            home="/home/carol",
            shell="/bin/sh",
            fullname="Carol C.",
            password=HASH,
            root=str(root),
        )
        .changes
    )
    assert line(root, "passwd", "carol") == ["carol", "x", "1234", "1500", "Carol C.", "/home/carol", "/bin/sh"]
    assert line(root, "shadow", "carol")[1] == HASH
    assert [line(root, "group", name)[3] for name in ("adm", "staff")] == ["carol", "carol"]
    assert (root / "home/carol").is_dir()
    assert HASH not in repr(changes)


def test_present_changes_only_what_differs(root: Path) -> None:
    run = Run()
    run.apply("user.present", name="carol", shell="/bin/sh", groups=["adm"], root=str(root))
    changes = run.apply("user.present", name="carol", shell="/bin/bash", groups=["staff"], root=str(root)).changes
    assert changes == {
        "shell": {"old": "/bin/sh", "new": "/bin/bash"},
        "groups": {"old": ["adm"], "new": ["staff"]},
    }
    kept_groups = run.apply("user.present", name="carol", groups=["adm"], remove_groups=False, root=str(root)).changes
    assert kept_groups["groups"]["new"] == ["adm", "staff"]


def test_a_changed_password_is_set_again_only_if_enforced(root: Path) -> None:
    run = Run()
    run.apply("user.present", name="carol", password=HASH, root=str(root))
    shadow = root / "etc/shadow"
    shadow.write_text(re.sub(r"(?m)^carol:[^:]*", "carol:$6$other$x", shadow.read_text()))
    unforced = {"name": "carol", "password": HASH, "enforce_password": False, "root": str(root)}
    assert run.apply("user.present", **unforced).changes == {}
    assert run.apply("user.present", name="carol", password=HASH, root=str(root)).changes
    assert line(root, "shadow", "carol")[1] == HASH


def test_a_missing_group_fails_a_real_run_but_not_a_dry_one(root: Path) -> None:
    with pytest.raises(StateError, match=r"there is no group docker; add group\.present"):
        Run().apply("user.present", name="carol", groups=["docker"], root=str(root))
    assert Run().check("user.present", name="carol", groups=["docker"], root=str(root)).changes
    assert line(root, "passwd", "carol") == []


def test_absent_removes_the_user_and_with_purge_the_home(root: Path) -> None:
    run = Run()
    run.apply("user.present", name="carol", home="/home/carol", root=str(root))
    assert run.apply("user.absent", name="carol", purge=True, root=str(root)).changes == {"carol": "removed"}
    assert line(root, "passwd", "carol") == []
    assert not (root / "home/carol").exists()


def test_group_gets_number_and_members(root: Path) -> None:
    run = Run()
    for name in ("carol", "dave"):
        run.apply("user.present", name=name, groups=["adm"], root=str(root))
    run.apply("group.present", name="web", gid=2000, members=["carol"], root=str(root))
    assert line(root, "group", "web")[2:] == ["2000", "carol"]
    changes = run.apply(
        "group.present", name="web", gid=2001, addusers=["dave"], delusers=["carol"], root=str(root)
    ).changes
    assert changes == {"gid": {"old": 2000, "new": 2001}, "members": {"old": ["carol"], "new": ["dave"]}}
    assert line(root, "group", "adm")[3] == "carol,dave", "other memberships stay"
    assert run.apply("group.absent", name="web", root=str(root)).changes == {"web": "removed"}
    assert line(root, "group", "web") == []


def test_the_machines_own_accounts_are_read() -> None:
    assert Run().apply("user.present", name="root", uid=0, home="/root").changes == {}
    assert Run().apply("group.present", name="root", gid=0).changes == {}


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("user.present", {"name": "-x"}, "no name for a user"),
        ("user.present", {"name": "x", "password": "hunter2"}, "give its hash"),
        ("user.present", {"name": "x", "home": "/a:/b"}, "neither a colon"),
        ("group.present", {"name": "x y"}, "no name for a group"),
        ("group.present", {"name": "x", "members": ["a"], "addusers": ["b"]}, "leave addusers"),
    ],
)
def test_bad_arguments_are_refused(function: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        Run().apply(function, **arguments)
