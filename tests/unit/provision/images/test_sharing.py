"""Images that share chunks: their sizes, and what is left when one goes."""

import os
import time
from pathlib import Path

import pytest

from rackwright.provision.images.manifest import ImageFile
from rackwright.provision.images.shelf import REPLACED_KEPT, ROOT_FILE, NoImage, Shelf, own_and_shared


def _put(shelf: Shelf, name: str, *pieces: bytes) -> None:
    chunks = tuple(shelf.chunks.put(piece) for piece in pieces)
    whole = ImageFile(shelf.folder, sum(map(len, pieces)), "0" * 64, chunks)
    with shelf.making(name, {}, {ROOT_FILE: whole}) as folder:
        (folder / "notes").write_bytes(b"12345")


def _chunks(shelf: Shelf) -> set[bytes]:
    return {path.read_bytes() for path in shelf.chunks.folder.glob("*/*")}


def test_what_two_images_have_lies_there_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "first", b"common", b"one")
    _put(shelf, "second", b"common", b"other")
    assert _chunks(shelf) == {b"common", b"one", b"other"}
    assert own_and_shared(shelf.all()) == {"first": (5 + 3, 6), "second": (5 + 5, 6)}
    assert b"".join(shelf.read(shelf.file("second", ROOT_FILE))) == b"commonother"


def test_deleting_an_image_frees_what_no_other_has(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "first", b"common", b"one")
    _put(shelf, "second", b"common", b"other")
    assert shelf.delete("first") == 5 + 3
    assert _chunks(shelf) == {b"common", b"other"}
    with pytest.raises(NoImage):
        shelf.find("first")
    shelf.delete("second")
    assert _chunks(shelf) == set()


def test_installs_under_way_still_find_the_chunks_of_an_image_that_was_replaced(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "first", b"old")
    _put(shelf, "first", b"new")
    assert _chunks(shelf) == {b"old", b"new"}
    long_ago = time.time() - REPLACED_KEPT - 1
    for path in (shelf.folder / ".replaced").iterdir():
        os.utime(path, (long_ago, long_ago))
    _put(shelf, "second", b"x")
    assert _chunks(shelf) == {b"new", b"x"}


def test_while_an_image_is_made_nothing_of_it_is_removed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "first", b"one")
    with shelf.making("second", {}, {}):
        shelf.chunks.put(b"of the second")
        shelf.delete("first")
        assert b"of the second" in _chunks(shelf)
    assert _chunks(shelf) == set(), "it was no image's in the end"


def test_an_image_that_failed_leaves_none_of_its_chunks(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "first", b"one")

    def fail() -> None:
        with shelf.making("second", {}, {}):
            shelf.chunks.put(b"of the second")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert _chunks(shelf) == {b"one"}


def test_a_manifest_that_cannot_be_read_costs_no_chunks(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "first", b"one")
    (shelf.folder / "first" / "manifest.json").write_text("{")
    _put(shelf, "second", b"other")
    assert _chunks(shelf) == {b"one", b"other"}


def test_an_image_without_chunks_is_of_an_earlier_version(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with shelf.making("first", {}) as folder:
        (folder / ROOT_FILE).write_bytes(b"whole")
    with pytest.raises(NoImage, match="earlier version"):
        shelf.installable("first")
