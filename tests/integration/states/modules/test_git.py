"""`git` with real repositories."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *settings, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "one")
    git(folder, "tag", "-a", "v1", "-m", "v1")
    return folder


@pytest.fixture
def arguments(origin: Path, tmp_path: Path) -> dict[str, Any]:
    return {"name": str(origin), "target": str(tmp_path / "clone")}


def test_latest_clones_and_follows_the_branch(origin: Path, arguments: dict[str, Any], tmp_path: Path) -> None:
    first = git(origin, "rev-parse", "HEAD")
    changes = Run().apply("git.latest", rev="main", **arguments).changes
    assert changes == {"new": f"{origin} => {tmp_path}/clone", "revision": {"old": None, "new": first}}
    second = commit(origin, "two")
    assert Run().check("git.latest", rev="main", **arguments).changes == {"revision": {"old": first, "new": second}}
    assert Run().apply("git.latest", rev="main", **arguments).outputs == {"revision": second}
    assert (tmp_path / "clone/file").read_text() == "two"
    assert git(tmp_path / "clone", "symbolic-ref", "--short", "HEAD") == "main"


def test_latest_checks_out_a_tag_and_another_branch(origin: Path, arguments: dict[str, Any], tmp_path: Path) -> None:
    commit(origin, "two")
    git(origin, "checkout", "--quiet", "-b", "next")
    commit(origin, "three")
    run = Run()
    for reference, text in (("v1", "one"), ("next", "three"), ("main", "two")):
        run.apply("git.latest", rev=reference, **arguments)
        assert (tmp_path / "clone/file").read_text() == text


def test_latest_keeps_local_changes_unless_forced(origin: Path, arguments: dict[str, Any], tmp_path: Path) -> None:
    run = Run()
    run.apply("git.latest", rev="main", **arguments)
    commit(origin, "two")
    (tmp_path / "clone/file").write_text("edited")
    with pytest.raises(StateError, match="changes that are not committed; set force_reset"):
        run.apply("git.latest", rev="main", **arguments)
    run.apply("git.latest", rev="main", force_reset=True, **arguments)
    assert (tmp_path / "clone/file").read_text() == "two"


def test_latest_refuses_to_drop_local_commits_unless_forced(
    origin: Path, arguments: dict[str, Any], tmp_path: Path
) -> None:
    run = Run()
    run.apply("git.latest", rev="main", **arguments)
    commit(tmp_path / "clone", "mine")
    wanted = commit(origin, "two")
    with pytest.raises(StateError, match=r"has commits that .* has not"):
        run.apply("git.latest", rev="main", **arguments)
    run.apply("git.latest", rev="main", force_reset=True, **arguments)
    assert git(tmp_path / "clone", "rev-parse", "HEAD") == wanted


def test_latest_of_a_missing_branch_says_so(arguments: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="has no branch or tag 'nosuch'"):
        Run().apply("git.latest", rev="nosuch", **arguments)


def test_a_folder_in_the_way_is_replaced_only_by_force(arguments: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "mine").write_text("x")
    with pytest.raises(StateError, match="force_clone: true"):
        Run().apply("git.latest", **arguments)
    Run().apply("git.latest", force_clone=True, **arguments)
    assert (tmp_path / "clone/file").exists()


def test_cloned_clones_once_and_switches_the_branch(origin: Path, arguments: dict[str, Any], tmp_path: Path) -> None:
    run = Run()
    run.apply("git.cloned", **arguments)
    git(origin, "branch", "next")
    commit(origin, "two")
    assert run.apply("git.cloned", **arguments).changes == {}
    changes = run.apply("git.cloned", branch="next", **arguments).changes
    assert changes == {"branch": {"old": "main", "new": "next"}}


def test_detached_is_on_no_branch(origin: Path, arguments: dict[str, Any], tmp_path: Path) -> None:
    first = git(origin, "rev-parse", "HEAD")
    run = Run()
    run.apply("git.detached", rev=first, **arguments)
    assert subprocess.run(["git", "-C", arguments["target"], "symbolic-ref", "-q", "HEAD"]).returncode == 1
    second = commit(origin, "two")
    run.apply("git.detached", rev=second, **arguments)
    assert git(tmp_path / "clone", "rev-parse", "HEAD") == second
    run.apply("git.detached", rev="v1", **arguments)
    assert git(tmp_path / "clone", "rev-parse", "HEAD") == first


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can reach, which tmp_path is not."""
    with tempfile.TemporaryDirectory(prefix="rackwright-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_clone_belongs_to_the_user_and_is_not_touched_as_another(origin: Path, shared: Path) -> None:
    source, work = shared / "origin", shared / "work"
    shutil.copytree(origin, source)
    work.mkdir()
    subprocess.run(["chown", "-R", "nobody", str(shared)], check=True)
    arguments = {"name": str(source), "target": str(work / "clone"), "rev": "main"}
    Run().apply("git.latest", user="nobody", **arguments)
    assert (work / "clone/file").owner() == "nobody"
    with pytest.raises(StateError, match=r"belongs to another user|dubious ownership"):
        Run().apply("git.latest", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "--upload-pack=x", "target": "/x"}, "no address"),
        ({"name": "x", "target": "y"}, "no absolute path"),
        ({"name": "https://me:hunter2@example.org/x", "target": "/y"}, "has a password in it"),
        ({"name": "x", "target": "/y", "rev": "--force"}, "no name git would take"),
        ({"name": "x", "target": "/y", "depth": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        Run().apply("git.latest", **arguments)
