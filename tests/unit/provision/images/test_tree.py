"""The libraries of a program in unpacked packages are taken from those packages and from nowhere else.

The trees are made of this host's own programs: `ls`, of which every Debian has one, and the libraries that it loads.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.tree import Tree, read_needs

LIBC = "libc.so.6"


@pytest.fixture(scope="session")
def host_libraries() -> dict[str, Path]:
    """What `ls` loads on this host, by name."""
    listed = subprocess.run(["ldd", "/bin/ls"], capture_output=True, text=True, check=True).stdout
    return {name: Path(path) for name, path in re.findall(r"(\S+) => (/\S+)", listed)}


@pytest.fixture
def tree(tmp_path: Path, host_libraries: dict[str, Path]) -> Tree:
    """`ls` as mmdebstrap unpacks it: libc in /lib/TRIPLET, all other libraries in /usr/lib/TRIPLET."""
    folder = tmp_path / "tree"
    loader = read_needs(Path("/bin/ls")).loader
    triplet = host_libraries[LIBC].parent.name
    _copy(Path("/bin/ls"), folder / "bin/ls")
    _copy(Path("/", loader), folder / f"lib/{triplet}/ld.so")
    (folder / loader).parent.mkdir(parents=True, exist_ok=True)
    (folder / loader).symlink_to(f"/lib/{triplet}/ld.so")
    for name, path in host_libraries.items():
        _copy(path, folder / ("lib" if name == LIBC else "usr/lib") / triplet / name)
    return Tree(folder)


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, to)


def test_libraries_come_from_every_library_folder_of_the_tree(tree: Tree, host_libraries: dict[str, Path]) -> None:
    libraries = tree.libraries("bin/ls")
    loader = read_needs(Path("/bin/ls")).loader
    assert set(libraries) == {loader, *(f"lib/{name}" for name in host_libraries)}
    assert all(path.is_relative_to(tree.folder) for path in libraries.values()), libraries


def test_a_library_that_only_this_host_has_is_refused(tree: Tree, host_libraries: dict[str, Path]) -> None:
    """The image would carry a library that no package of it has, and nobody would know."""
    missing = next(name for name in host_libraries if name != LIBC)
    next(tree.folder.glob(f"usr/lib/*/{missing}")).unlink()
    with pytest.raises(BuildFailed, match=rf"do not have {re.escape(missing)}, which /\S+ loads"):
        tree.libraries("bin/ls")


def test_links_are_followed_as_if_the_tree_were_the_root_directory(tree: Tree) -> None:
    """Neither / nor .. leave it, links in the middle of a path count, and a circle ends."""
    (tree.folder / "absolute").symlink_to("/usr")
    (tree.folder / "upwards").symlink_to("../../../usr")
    (tree.folder / "circle").symlink_to("circle")
    assert tree.path("absolute/lib") == tree.path("upwards/lib") == tree.folder / "usr/lib"
    for nothing in ("circle", "absolute/lib/nothing", "upwards/etc/hostname"):
        with pytest.raises(BuildFailed, match=f"do not have /{nothing}"):
            tree.path(nothing)


def test_a_script_in_place_of_a_program_is_told(tree: Tree) -> None:
    (tree.folder / "bin/tool").write_text("#!/bin/sh\n")
    with pytest.raises(BuildFailed, match="no program or library that can be read"):
        tree.libraries("bin/tool")


def test_a_program_runs_with_the_libraries_of_its_tree(tree: Tree, tmp_path: Path) -> None:
    tree.run("bin/ls", "ls", str(tmp_path))
    with pytest.raises(BuildFailed, match="ended with status"):
        tree.run("bin/ls", "ls", str(tmp_path / "missing"))
