"""Publishing an image, whatever interrupts it and whoever publishes at the same time: the old one or the new one."""

import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rackwright.provision.images import shelf as shelf_module
from rackwright.provision.images.manifest import ImageFile
from rackwright.provision.images.shelf import ROOT_FILE, NoImage, Shelf


def _put(shelf: Shelf, content: bytes) -> None:
    with shelf.making("debian-12", {}, {}) as folder:
        (folder / "kernel").write_bytes(content)
        (folder / "initrd").write_bytes(content)


def _content(shelf: Shelf) -> bytes:
    """Return what the image has; all of its files have the same."""
    image = shelf.find("debian-12")
    contents = {file.path.read_bytes() for file in image.files.values()}
    assert len(image.files) == 2
    [content] = contents
    return content


def _left(shelf: Shelf) -> list[bool]:
    """Return what lies there, but for locks and what is remembered: whether each is a link."""
    return sorted(path.is_symlink() for path in shelf.folder.iterdir() if path.name not in (".lock", ".replaced"))


def _trace_lines(work: Callable[[], None], at_line: Callable[[int], None]) -> int:
    """Do some work, and call something before each line of the shelf's module; return how many lines there were."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != shelf_module.__file__:
            return None
        if event == "line":
            count += 1
            at_line(count)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_one_that_is_killed_at_any_line_leaves_the_old_image_or_the_new_one(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "home")
    _put(shelf, b"old")
    copies: list[Shelf] = []

    def copy(number: int) -> None:
        copied = Shelf(tmp_path / str(number))
        shutil.copytree(shelf.folder, copied.folder, symlinks=True)
        copies.append(copied)

    lines = _trace_lines(lambda: _put(shelf, b"new"), copy)
    assert lines > 20
    assert {_content(copied) for copied in copies} == {b"old", b"new"}
    for copied in copies:
        before = _content(copied)
        copied.clean()
        assert _content(copied) == before
        assert _left(copied) == [False, True], "the link and the folder it leads to"


def test_one_that_is_interrupted_at_any_line_leaves_the_old_image_or_the_new_one(tmp_path: Path) -> None:
    wanted, lines, seen = 1, 2, set[bytes]()

    def interrupt(number: int) -> None:
        if number == wanted:
            raise KeyboardInterrupt

    while wanted < lines:
        shelf = Shelf(tmp_path / str(wanted))
        _put(shelf, b"old")
        try:
            lines = _trace_lines(lambda shelf=shelf: _put(shelf, b"new"), interrupt)  # type: ignore[misc]
        except KeyboardInterrupt:
            lines = wanted + 2
        seen.add(_content(shelf))
        shelf.clean()
        assert _left(shelf) == [False, True]
        wanted += 1
    assert seen == {b"old", b"new"}


def test_two_that_publish_under_one_name_both_end_and_one_of_them_is_there(tmp_path: Path) -> None:
    lines = _trace_lines(lambda: _put(Shelf(tmp_path / "counted"), b"new"), lambda _: None)
    for wanted in range(1, lines + 1):
        shelf = Shelf(tmp_path / str(wanted))
        _put(shelf, b"old")
        failed: list[BaseException] = []
        other = threading.Thread(target=_record_failure, args=(failed, lambda shelf=shelf: _put(shelf, b"second")))

        def meanwhile(number: int, other: threading.Thread = other, wanted: int = wanted) -> None:
            if number == wanted:
                other.start()
                other.join(0.02)  # it ends, or waits for its turn

        _trace_lines(lambda shelf=shelf: _put(shelf, b"first"), meanwhile)  # type: ignore[misc]
        other.join()
        assert failed == []
        assert _content(shelf) in (b"first", b"second")
        shelf.clean()
        assert _left(shelf) == [False, True]


def _record_failure(failed: list[BaseException], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001  # whatever it is fails the test
        failed.append(error)


def test_all_of_an_image_is_on_the_disk_before_its_name_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, b"old")
    synced: set[int] = set()
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def check_synced(source: Path, target: Path) -> None:
        if target == shelf.folder / "debian-12":
            made = source.resolve()
            needed = [made, *made.iterdir(), *shelf.chunks.folder.glob("*"), *shelf.chunks.folder.glob("*/*")]
            assert {path.stat().st_ino for path in needed} <= synced
            synced.clear()
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", check_synced)
    chunk = shelf.chunks.put(b"root")
    with shelf.making("debian-12", {}, {ROOT_FILE: ImageFile(tmp_path, 4, "0" * 64, (chunk,))}) as folder:
        (folder / "kernel").write_bytes(b"new")
    assert shelf.folder.stat().st_ino in synced, "the name too, when it is said to be there"


def test_a_signature_is_not_put_beside_an_image_that_replaced_the_signed_one(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, b"old")
    image = shelf.find("debian-12")
    _put(shelf, b"new")
    with pytest.raises(NoImage, match="was replaced while it was being signed"):
        shelf.sign(image, "untrusted comment: of the old one\n")
    assert shelf.find("debian-12").signature is None


def test_chunks_that_an_install_names_are_kept_until_it_has_ended(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    named, other = shelf.chunks.put(b"named"), shelf.chunks.put(b"other")
    shelf.folder.joinpath(".lock").touch()
    shelf.keep_named({named.sha256})
    shelf.clean()
    assert shelf.chunks.path(named.sha256)
    assert not shelf.chunks.path(other.sha256)
    shelf.keep_named(set())
    shelf.clean()
    assert not shelf.chunks.path(named.sha256)


@pytest.mark.parametrize("file", [".installing.json", ".replaced/debian-12.x.json"])
def test_a_record_of_chunks_that_cannot_be_read_costs_no_chunks(tmp_path: Path, file: str) -> None:
    shelf = Shelf(tmp_path)
    chunk = shelf.chunks.put(b"named")
    (shelf.folder / file).parent.mkdir(exist_ok=True)
    (shelf.folder / file).write_text('["')
    shelf.clean()
    assert shelf.chunks.path(chunk.sha256)


def test_a_manifest_and_a_signature_that_are_no_text_are_told(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, b"old")
    (shelf.folder / "debian-12" / "manifest.minisig").write_bytes(b"untrusted comment: \xff\xfe\n\xff\n")
    assert shelf.find("debian-12").signature is not None
    (shelf.folder / "debian-12" / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(NoImage, match="is broken"):
        shelf.find("debian-12")
