"""`archive.extracted` with real archives, honest ones and others."""

import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError
from rackwright.states.support.files import sha256


def tar(path: Path, *members: tuple[str, Any]) -> Path:
    """A tar.gz; a member's content is bytes, None for a folder, or a TarInfo type with its link."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o750
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            elif isinstance(content, tuple):
                entry.type, entry.linkname = content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def test_a_tar_is_extracted_with_modes_links_and_owner(tmp_path: Path, target: Path) -> None:
    archive = tar(
        tmp_path / "a.tar.gz",
        ("app/", None),
        ("app/bin/run", b"#!/bin/sh\n"),
        ("app/current", (tarfile.SYMTYPE, "bin/run")),
        ("app/again", (tarfile.LNKTYPE, "app/bin/run")),
    )
    digest = "sha256=" + sha256(archive.read_bytes())
    owner = {"user": "nobody"} if os.geteuid() == 0 else {}
    run = Run()
    changes = run.apply("archive.extracted", name=str(target), source=str(archive), source_hash=digest, **owner).changes
    assert changes["extracted_files"] == ["app", "app/bin/run", "app/current", "app/again"]
    assert stat.S_IMODE((target / "app/bin/run").stat().st_mode) == 0o750
    assert os.readlink(target / "app/current") == "bin/run"
    assert (target / "app/again").samefile(target / "app/bin/run")
    assert not owner or (target / "app/bin/run").owner() == "nobody"
    assert sorted(path.name for path in target.iterdir()) == ["app"], "nothing is left of the unpacking"


def test_clean_does_not_remove_the_archive_itself(target: Path) -> None:
    target.mkdir()
    archive = tar(target / "a.tar.gz", ("app/", None))
    with pytest.raises(StateError, match="clean would remove the archive"):
        Run().apply("archive.extracted", name=str(target), source=str(archive), clean=True)
    assert archive.exists()


def test_a_zip_from_the_tree_is_extracted_without_its_top_folder(tmp_path: Path, target: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("app-1.0/a", "a")
        archive.writestr("app-1.0/sub/b", "b")
    Run(root=tmp_path).apply("archive.extracted", name=str(target), source="salt://a.zip", strip=1)
    assert (target / "sub/b").read_text() == "b"


def test_a_missing_or_cut_off_file_is_extracted_again(tmp_path: Path, target: Path) -> None:
    archive = tar(tmp_path / "a.tgz", ("d/a", b"whole"), ("d/b", b"whole"))
    run = Run()
    run.apply("archive.extracted", name=str(target), source=str(archive))
    (target / "d/a").write_text("wh")
    (target / "d/b").unlink()
    changes = run.apply("archive.extracted", name=str(target), source=str(archive)).changes
    assert changes == {"extracted_files": ["d/a", "d/b"]}
    assert (target / "d/a").read_text() == "whole"


def test_clean_removes_what_the_archive_has_not(tmp_path: Path, target: Path) -> None:
    archive = tar(tmp_path / "a.tgz", ("d/sub/a", b"a"))
    (target / "d/old").mkdir(parents=True)
    (target / "d/old/x").write_text("x")
    changes = Run().apply("archive.extracted", name=str(target), source=str(archive), clean=True).changes
    assert changes["removed"] == ["d/old"]
    assert not (target / "d/old").exists()
    assert (target / "d/sub/a").exists()


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", b"x")],
        [("/tmp/evil", b"x")],
        [("d/../../evil", b"x")],
        [("d/link", (tarfile.SYMTYPE, "../../outside"))],
        [("d/link", (tarfile.SYMTYPE, "/etc"))],
        [("d/link", (tarfile.LNKTYPE, "../../etc/passwd"))],
        [("d/sub", (tarfile.SYMTYPE, ".")), ("d/sub/evil", b"x")],
        [("d/pipe", (tarfile.FIFOTYPE, ""))],
        [("d/device", (tarfile.CHRTYPE, ""))],
    ],
)
def test_an_archive_that_leads_out_is_refused_as_a_whole(
    tmp_path: Path, target: Path, members: list[tuple[str, Any]]
) -> None:
    archive = tar(tmp_path / "a.tgz", ("d/good", b"good"), *members)
    with pytest.raises(StateError, match="nothing was extracted"):
        Run().apply("archive.extracted", name=str(target), source=str(archive), enforce_toplevel=False)
    assert not target.exists()
    assert not (tmp_path / "evil").exists()


def test_a_link_that_was_there_before_is_not_written_through(tmp_path: Path, target: Path) -> None:
    archive = tar(tmp_path / "a.tgz", ("d/sub/file", b"x"))
    (tmp_path / "elsewhere").mkdir()
    (target / "d").mkdir(parents=True)
    (target / "d/sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="would land elsewhere"):
        Run().apply("archive.extracted", name=str(target), source=str(archive))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_altered_archive_and_one_that_is_none_are_refused(tmp_path: Path, target: Path) -> None:
    archive = tar(tmp_path / "a.tgz", ("d/a", b"a"))
    arguments = {"name": str(target), "source": str(archive)}
    with pytest.raises(StateError, match="not what was asked for"):
        Run().apply("archive.extracted", source_hash="sha256=" + "0" * 64, **arguments)
    archive.write_bytes(archive.read_bytes()[:30])
    with pytest.raises(StateError, match="no archive that can be read"):
        Run().apply("archive.extracted", **arguments)
    assert not target.exists()


def test_an_archive_that_would_spread_is_refused_unless_wanted(tmp_path: Path, target: Path) -> None:
    archive = tar(tmp_path / "a.tgz", ("a", b"a"), ("b", b"b"))
    with pytest.raises(StateError, match="enforce_toplevel: false"):
        Run().apply("archive.extracted", name=str(target), source=str(archive))
    Run().apply("archive.extracted", name=str(target), source=str(archive), enforce_toplevel=False)


def test_if_missing_leaves_all_alone(tmp_path: Path, target: Path) -> None:
    arguments = {"name": str(target), "source": "/nonexistent.tgz", "if_missing": str(tmp_path)}
    assert Run().apply("archive.extracted", **arguments).changes == {}
