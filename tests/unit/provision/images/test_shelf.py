"""The shelf: images are complete or not there at all, and no name leads out of it."""

import hashlib
from pathlib import Path

import pytest

from rackwright.provision.images.shelf import NoImage, Shelf


def _put(shelf: Shelf, name: str, content: bytes) -> None:
    with shelf.making(name, {"suite": "trial"}) as folder:
        (folder / "kernel").write_bytes(content)


def test_a_file_is_found_with_its_size_and_digest(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "sledgehammer", b"kernel")
    file = shelf.file("sledgehammer", "kernel")
    assert file.path.read_bytes() == b"kernel"
    assert (file.size, file.sha256) == (6, hashlib.sha256(b"kernel").hexdigest())
    assert [image.name for image in shelf.all()] == ["sledgehammer"]


def test_a_new_image_takes_the_place_of_the_old_one_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "debian-12", b"old")
    with shelf.file("debian-12", "kernel").path.open("rb") as reading:
        _put(shelf, "debian-12", b"new")
        assert reading.read() == b"old", "who was reading it goes on"
    assert shelf.file("debian-12", "kernel").path.read_bytes() == b"new"
    left = [path for path in (tmp_path / "images").iterdir() if path.name != ".lock"]
    assert sorted(path.is_symlink() for path in left if path.name != ".replaced") == [False, True], "a link to a folder"


def test_an_image_that_could_not_be_made_changes_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "debian-12", b"old")

    def fail() -> None:
        with shelf.making("debian-12", {}) as folder:
            (folder / "kernel").write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shelf.file("debian-12", "kernel").path.read_bytes() == b"old"
    left = [path for path in (tmp_path / "images").iterdir() if path.name != ".lock"]
    assert sorted(path.is_symlink() for path in left) == [False, True], "the link and the folder it leads to"


@pytest.mark.parametrize("name", ["..", "../home", "/etc", "", ".debian-12.x", "a/b", "a\0b", "A" * 100, "debian-12\n"])
def test_a_name_that_is_no_image_finds_nothing(tmp_path: Path, name: str) -> None:
    shelf = Shelf(tmp_path)
    _put(shelf, "debian-12", b"x")
    with pytest.raises(NoImage):
        shelf.find(name)


def test_no_image_has_the_name_of_what_lies_beside_the_images(tmp_path: Path) -> None:
    with pytest.raises(NoImage, match="is no name of an image"), Shelf(tmp_path).making("chunks", {}):
        pytest.fail("nothing is begun")


@pytest.mark.parametrize("file", ["..", "../../secret", "manifest.json", "/etc/passwd", "kernel/../kernel", ""])
def test_a_file_that_the_manifest_does_not_name_is_not_there(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret").write_text("x")
    shelf = Shelf(tmp_path)
    _put(shelf, "debian-12", b"x")
    with pytest.raises(NoImage):
        shelf.file("debian-12", file)


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoImage, match="rackwright image build debian-12"):
        Shelf(tmp_path).find("debian-12")
