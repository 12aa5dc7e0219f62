"""Barclamp folders: which files one may have, and what its digest is made of."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rackwright.barclamps.content import MAX_BYTES, digest_of, folder_digest, pack, read_folder, unpack, write_entries
from rackwright.barclamps.loader import load_folder
from rackwright.domain.errors import BarclampInvalid

TEXT = "name: web\nroles:\n  - {name: web-server, jig: script}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    scripts = folder / "script" / "roles" / "web-server"
    scripts.mkdir(parents=True)
    (folder / "barclamp.yml").write_text(TEXT)
    (scripts / "01-install.sh").write_text("true\n")
    return folder


def test_folder_is_loaded_with_its_path(folder: Path) -> None:
    barclamp = load_folder(folder)
    assert (barclamp.name, barclamp.path) == ("web", str(folder))


def no_file(folder: Path) -> None:
    (folder / "barclamp.yml").unlink()


def not_utf8(folder: Path) -> None:
    (folder / "barclamp.yml").write_bytes(b"name: web\ndescription: caf\xe9\n")


def a_mistake(folder: Path) -> None:
    (folder / "barclamp.yml").write_text("name: web\nrolls: []\n")


def scripts_of_no_role(folder: Path) -> None:
    (folder / "script" / "roles" / "web-sever").mkdir()


def no_scripts(folder: Path) -> None:
    (folder / "script" / "roles" / "web-server" / "01-install.sh").rename(folder / "script" / "install.sh")


def no_scripts_at_all(folder: Path) -> None:
    (folder / "script").rename(folder / "scripts")


def no_states(folder: Path) -> None:
    (folder / "barclamp.yml").write_text(TEXT + "  - {name: web-pages, jig: state}\n")


def too_large(folder: Path) -> None:
    (folder / "templates").mkdir()
    with (folder / "templates" / "image").open("wb") as image:
        image.truncate(MAX_BYTES)


def script_outside_a_role(folder: Path) -> None:
    (folder / "script" / "roles" / "all.sh").write_text("true\n")


def scripts_no_folder(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    (folder / "script").rename(other / "script")
    (folder / "script").mkdir()
    (folder / "script" / "roles").write_text("")


def link_out(folder: Path) -> None:
    (folder / "templates").symlink_to("../..")


def link_out_and_back(folder: Path) -> None:
    (folder / "again.yml").symlink_to(folder / "barclamp.yml")


def file_is_link_out(folder: Path) -> None:
    (folder / "barclamp.yml").rename(folder.parent / "barclamp.yml")
    (folder / "barclamp.yml").symlink_to("../barclamp.yml")


def link_to_nothing(folder: Path) -> None:
    (folder / "roles.py").symlink_to("nothing.py")


def link_to_itself(folder: Path) -> None:
    (folder / "roles.py").symlink_to("roles.py")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "roles.py")


@pytest.mark.parametrize(
    ("spoil", "file", "line", "reason"),
    [
        (no_file, "barclamp.yml", 1, "There is no such file"),
        (not_utf8, "barclamp.yml", 2, "This is not UTF-8"),
        (a_mistake, "barclamp.yml", 2, "did you mean 'roles'?"),
        (scripts_of_no_role, "script/roles/web-sever", 1, "has no role 'web-sever' for these scripts; did you mean"),
        (no_scripts, "script/roles/web-server", 1, "There is no *.sh here"),
        (no_scripts_at_all, "script/roles/web-server", 1, "has the jig 'script' and no scripts"),
        (no_states, "states/web-pages", 1, "has the jig 'state' and no states"),
        (too_large, "templates/image", 1, "more than 16 MiB or 2000 files"),
        (script_outside_a_role, "script/roles/all.sh", 1, "Only folders belong here"),
        (scripts_no_folder, "script/roles", 1, "must be a folder"),
        (link_out, "templates", 1, "leads out of the barclamp's folder (../..)"),
        (link_out_and_back, "again.yml", 1, "leads out of the barclamp's folder"),
        (file_is_link_out, "barclamp.yml", 1, "leads out of the barclamp's folder"),
        (link_to_nothing, "roles.py", 1, "leads nowhere (nothing.py)"),
        (link_to_itself, "roles.py", 1, "leads nowhere (roles.py)"),
        (pipe, "roles.py", 1, "neither a file nor a folder"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_folder_is_refused(folder: Path, spoil: Callable[[Path], None], file: str, line: int, reason: str) -> None:
    spoil(folder)
    with pytest.raises(BarclampInvalid) as refused:
        load_folder(folder)
    assert (refused.value.file, refused.value.line) == (str(folder / file), line)
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("name: network", 1, "Barclamp 'network' comes with Rackwright"),
        ("name: networks", 1, "Barclamp 'networks' comes with Rackwright"),
        ("name: x\njigs: [{name: network}]", 2, "Jig 'network' belongs to barclamp 'network'"),
        ("name: x\nroles: [{name: lab-base, jig: noop}]", 2, "Role 'lab-base' belongs to barclamp 'lab'"),
        ("name: x\nhammers: [{name: ipmi}]", 2, "Hammer 'ipmi' belongs to barclamp 'provisioner'"),
        ("name: x\nattribs: [{name: cpu, map: my/cpu}]", 2, "Attrib 'cpu' belongs to barclamp 'core'"),
    ],
)
def test_names_of_what_comes_with_rackwright_are_refused(tmp_path: Path, text: str, line: int, reason: str) -> None:
    (tmp_path / "barclamp.yml").write_text(f"{text}\n")
    with pytest.raises(BarclampInvalid, match=reason) as refused:
        load_folder(tmp_path)
    assert refused.value.line == line


def test_link_within_the_folder_is_fine(folder: Path) -> None:
    (folder / "templates").symlink_to("script")
    assert load_folder(folder).name == "web"


def test_digest_stands_for_the_contents_and_not_for_the_place(folder: Path) -> None:
    before = folder_digest(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "roles.pyc").write_bytes(b"x")
    assert folder_digest(folder.rename(folder.parent / "elsewhere")) == before


def test_files_come_back_from_their_archive_as_they_were(folder: Path) -> None:
    executable_script(folder)
    script_as_link(folder)
    empty_folder(folder)
    entries = read_folder(folder)
    loaded = load_folder(folder)
    assert loaded.archive == pack(entries)
    write_entries(unpack(loaded.archive, loaded.digest), folder.parent / "again")
    assert folder_digest(folder.parent / "again") == loaded.digest == digest_of(entries) == folder_digest(folder)


def changed_script(folder: Path) -> None:
    (folder / "script" / "roles" / "web-server" / "01-install.sh").write_text("false\n")


def renamed_script(folder: Path) -> None:
    script = folder / "script" / "roles" / "web-server" / "01-install.sh"
    script.rename(script.with_name("02-install.sh"))


def executable_script(folder: Path) -> None:
    (folder / "script" / "roles" / "web-server" / "01-install.sh").chmod(0o755)


def empty_folder(folder: Path) -> None:
    (folder / "templates").mkdir()


def script_as_link(folder: Path) -> None:
    script = folder / "script" / "roles" / "web-server" / "01-install.sh"
    script.rename(folder / "install.sh")
    script.symlink_to("../../../install.sh")


@pytest.mark.parametrize("change", [changed_script, renamed_script, executable_script, empty_folder, script_as_link])
def test_digest_tells_folders_apart(folder: Path, change: Callable[[Path], None]) -> None:
    before = folder_digest(folder)
    change(folder)
    assert folder_digest(folder) != before
