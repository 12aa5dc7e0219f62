"""The writer of private files: completely or not at all, for the owner alone, with nothing left beside them."""

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rackwright.private_files import create_private_file, make_private_folder, sync_folder, write_private_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


def test_a_file_is_written_for_its_owner_alone_into_a_folder_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "key.pem"
    write_private_file(path, b"secret")
    assert path.read_bytes() == b"secret"
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["key.pem"]


def test_a_file_replaces_the_one_before_whatever_its_mode_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o666)
    write_private_file(path, b"after")
    assert (path.read_bytes(), mode_of(path)) == (b"after", 0o600)


def test_a_file_that_others_may_read_gets_its_mode(tmp_path: Path) -> None:
    write_private_file(tmp_path / "certificate.pem", b"public", mode=0o644)
    assert mode_of(tmp_path / "certificate.pem") == 0o644


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("stays")
    (tmp_path / "link").symlink_to("target")
    write_private_file(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_text() == "stays"
    assert not (tmp_path / "link").is_symlink()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_private_file(path, b"before")

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_private_file(path, b"after")
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_file_and_folder_are_synced_the_folder_after_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_private_file(tmp_path / "one", b"1")
    create_private_file(tmp_path / "two", b"2")
    assert synced == ["file", "folder"] * 2


def test_creating_a_file_keeps_the_one_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert create_private_file(path, b"first") is True
    assert create_private_file(path, b"second") is False
    assert (path.read_bytes(), mode_of(path)) == (b"first", 0o600)
    assert os.listdir(tmp_path) == ["key"]


def test_of_many_that_create_a_file_at_once_one_does(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: create_private_file(path, b"%d" % number), range(40)))
    assert created.count(True) == 1
    assert path.read_bytes() == b"%d" % created.index(True)
    assert os.listdir(tmp_path) == ["key"]


def test_many_writers_at_once_never_show_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_private_file(path, bytes([number]) * 10_000), range(40)))
    content = path.read_bytes()
    assert (len(content), len(set(content))) == (10_000, 1)
    assert os.listdir(tmp_path) == ["file"]


def test_a_long_name_has_room_for_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_private_file(path, b"content")
    assert path.read_bytes() == b"content"


def test_a_private_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    make_private_folder(folder)
    assert mode_of(folder) == 0o755
    sync_folder(folder)
