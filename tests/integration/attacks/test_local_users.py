"""What somebody with a plain account on a server, or with a repository of states, tries on who acts as root.

States write into folders of users. A link there must not turn that into a write, a gift or a removal anywhere else. A
repository that some servers run must not get at the files of the server that hands it on.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackwright.mesh.errors import BadRequest
from rackwright.mesh.runs.run_model import pack_tree
from rackwright.states.module import Context, StateError
from rackwright.states.modules import file
from rackwright.states.support.files import Owner, make_folder, refuse_foreign_links, remove_all, set_owner, write_whole

ALICE = 54321
"""A user without any rights."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Alice's folder."""
    folder = tmp_path / "alice"
    folder.mkdir()
    os.chown(folder, ALICE, ALICE)
    return folder


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A folder of root's, with a file in it."""
    folder = tmp_path / "system"
    folder.mkdir()
    (folder / "shadow").write_text("secret")
    (folder / "shadow").chmod(0o600)
    return folder


def link(path: Path, target: Path, user: int = ALICE) -> Path:
    path.symlink_to(target)
    os.lchown(path, user, user)
    return path


def untouched(system: Path) -> bool:
    status = (system / "shadow").stat()
    same = (system / "shadow").read_text() == "secret" and (status.st_uid, status.st_mode & 0o777) == (0, 0o600)
    return same and os.listdir(system) == ["shadow"] and system.stat().st_uid == 0


ACTS: list[Callable[[str], Any]] = [
    lambda path: write_whole(path, b"x", Owner(str(ALICE))),
    lambda path: set_owner(path, Owner(str(ALICE), None, 0o777)),
    lambda path: make_folder(path, Owner(str(ALICE))),
    remove_all,
]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", ["shadow", "new"])
def test_nothing_is_done_through_a_users_link_to_a_folder_of_roots(
    home: Path, system: Path, act: Callable[[str], Any], name: str
) -> None:
    link(home / "config", system)
    with pytest.raises(StateError, match="not that user's"):
        act(f"{home}/config/{name}")
    assert untouched(system)


@pytest.mark.parametrize("target", ["shadow", "new"])
def test_a_file_is_not_managed_through_a_users_link_to_a_file_of_roots(home: Path, system: Path, target: str) -> None:
    profile = link(home / "profile", system / target)
    arguments = {"name": str(profile), "contents": "x", "user": str(ALICE)}
    with pytest.raises(StateError, match="not that user's"):
        apply(file, "managed", arguments, home)
    assert untouched(system)


def test_a_tree_is_not_copied_through_users_links(home: Path, system: Path, tmp_path: Path) -> None:
    source = tmp_path / "tree" / "files" / "config"
    source.mkdir(parents=True)
    (source / "shadow").write_text("x")
    link(home / "config", system)
    with pytest.raises(StateError, match="not that user's"):
        apply(file, "recurse", {"name": str(home), "source": "salt://files", "user": str(ALICE)}, tmp_path / "tree")
    assert untouched(system)


def test_a_link_that_takes_a_files_place_is_given_away_alone(home: Path, system: Path) -> None:
    """Between the look and the act: neither owner nor mode of what it points to is changed."""
    set_owner(str(link(home / "x", system / "shadow")), Owner(str(ALICE + 1), None, 0o777))
    assert untouched(system)
    assert (home / "x").lstat().st_uid == ALICE + 1


@pytest.mark.parametrize("user", [0, ALICE])
def test_links_of_roots_and_links_of_users_to_what_is_theirs_are_followed(
    home: Path, tmp_path: Path, user: int
) -> None:
    (home / "real").mkdir()
    os.chown(home / "real", ALICE, ALICE)
    link(home / "config", home / "real", user)
    write_whole(f"{home}/config/file", b"x", Owner(str(ALICE)))
    assert (home / "real" / "file").read_bytes() == b"x"
    refuse_foreign_links(f"{home}/config", last=True)


def test_a_link_that_leads_in_circles_is_refused(home: Path) -> None:
    link(home / "a", home / "b", 0)
    link(home / "b", home / "a", 0)
    with pytest.raises(StateError):
        refuse_foreign_links(f"{home}/a/x")


def apply(module: Any, function: str, arguments: dict[str, Any], root: Path) -> None:
    """A state as the engine has it, with the defaults of what is not given."""
    definition = next(candidate for candidate in module.FUNCTIONS if candidate.name == function)
    values = {argument.name: argument.default for argument in definition.arguments} | arguments
    context = Context(False, root, {}, {}, threading.RLock(), lambda line: None)
    check = definition.check(values, context)
    definition.apply(values, check, context)


def test_a_repository_does_not_get_files_of_the_server_that_packs_it(tmp_path: Path) -> None:
    """What is packed lies in the datastore, for every member to read."""
    (tmp_path / "ca.key").write_text("secret")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "init.sls").symlink_to("../ca.key")
    with pytest.raises(BadRequest, match="link out of"):
        pack_tree(tree)


def test_a_link_within_a_tree_is_packed_as_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "a.sls").write_text("x")
    (tmp_path / "b.sls").symlink_to("a.sls")
    assert pack_tree(tmp_path)
