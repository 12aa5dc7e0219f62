"""Signatures made by minisign itself: only an image that one of the keys signed is taken and installed."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.machines.root_trees import make_root_tree, pack_tree

from rackwright.provision.images.importing.sources import import_image
from rackwright.provision.images.manifest import SIGNATURE, Image
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_images import Sign
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.signatures import (
    BadPublicKey,
    BadSignature,
    check_signature,
    make_signature,
    read_public_key,
    read_signature_file,
)


class Key:
    """A key of minisign, without a password."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.secret = folder / "secret"
        public = folder / "public"
        subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", self.secret], check=True, capture_output=True)
        self.public = public.read_text().splitlines()[1]

    @property
    def sign(self) -> Sign:
        def sign_image(image: Image) -> str:
            return make_signature(image.statement, self.secret, image.name)

        return sign_image


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key(tmp_path / "key")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return pack_tree(make_root_tree(tmp_path / "tree", size=100_000), tmp_path / "tar")


def test_minisign_and_this_agree(key: Key, tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_bytes(b"what is signed")
    subprocess.run(["minisign", "-S", "-s", key.secret, "-m", content, "-t", "a comment"], check=True)
    signature = (tmp_path / "content.minisig").read_text()
    check_signature(b"what is signed", signature, [Key(tmp_path / "other").public, key.public])
    with pytest.raises(BadSignature, match="something else"):
        check_signature(b"what is changed", signature, [key.public])
    with pytest.raises(BadSignature, match="trusted comment"):
        check_signature(b"what is signed", signature.replace("a comment", "b comment"), [key.public])
    with pytest.raises(BadSignature, match="by the key"):
        check_signature(b"what is signed", signature, [Key(tmp_path / "third").public])


def test_the_old_format_of_minisign_is_refused(key: Key, tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"x")
    subprocess.run(["minisign", "-S", "-l", "-s", key.secret, "-m", tmp_path / "content"], check=True)
    with pytest.raises(BadSignature, match="old format"):
        check_signature(b"x", (tmp_path / "content.minisig").read_text(), [key.public])


NO_ASCII = (
    "a\né\ntrusted comment: c\nd",
    "a\n\udcff\ntrusted comment: \udcff\nAAAA",
    "a\n\ufffd\ntrusted comment: \ufffd\n\ufffd",
)


@pytest.mark.parametrize("text", ["", "x\n" * 4, "a\nb\ntrusted comment: c\nd", "é" * 5000, "\0", *NO_ASCII])
def test_what_is_no_signature_is_refused(key: Key, text: str) -> None:
    with pytest.raises(BadSignature, match="no signature"):
        check_signature(b"x", text, [key.public])


def test_a_trusted_comment_that_is_no_text_is_refused(key: Key, tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"x")
    signature = make_signature(b"x", key.secret, "web").replace("image web", "image \ud800")
    with pytest.raises(BadSignature, match="trusted comment was changed"):
        check_signature(b"x", signature, [key.public])


@pytest.mark.parametrize("text", ["é" * 56, "RW\udcff", "\0"])
def test_a_public_key_that_is_no_ascii_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadPublicKey, match="no public key"):
        read_public_key(text)


def test_a_signature_on_the_shelf_that_is_no_text_is_told_and_breaks_nothing(
    key: Key, tmp_path: Path, archive: Path
) -> None:
    shelf = Shelf(tmp_path, [key.public])
    import_image(shelf, "trial-1", str(archive), lambda _: None, sign=key.sign)
    (shelf.folder / "trial-1" / SIGNATURE).write_bytes(b"untrusted comment: \xff\n\xff\ntrusted comment: \xff\n\xff\n")
    assert "is no signature of minisign" in str(shelf.find_problem("trial-1"))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n" * 4)
    (tmp_path / "circle").symlink_to("circle")
    for name in ("folder", "binary", "circle", "nothing", "x" * 300, "a\0b"):
        with pytest.raises(BuildFailed, match="cannot be read"):
            read_signature_file(tmp_path / name)
    for name in ("folder", "circle", "nothing", "x" * 300, "a\0b"):
        with pytest.raises(BuildFailed, match=r"cannot be read|There is no secret key"):
            make_signature(b"x", tmp_path / name, "web")


def test_where_keys_are_set_an_image_without_signature_is_not_imported(key: Key, tmp_path: Path, archive: Path) -> None:
    shelf = Shelf(tmp_path / "home", [key.public])
    with pytest.raises(NoImage, match="image_signing_keys"):
        import_image(shelf, "trial-1", str(archive), lambda _: None)
    assert not shelf.folder.exists()


def test_a_signature_by_another_key_leaves_nothing(key: Key, tmp_path: Path, archive: Path) -> None:
    shelf = Shelf(tmp_path / "home", [key.public])
    with pytest.raises(NoImage, match="by the key"):
        import_image(shelf, "trial-1", str(archive), lambda _: None, sign=Key(tmp_path / "other").sign)
    assert [path for path in shelf.folder.rglob("*") if path.is_file() and path.name != ".lock"] == []


def test_a_signed_image_is_installed_and_not_after_a_byte_of_it_changed(
    key: Key, tmp_path: Path, archive: Path
) -> None:
    shelf = Shelf(tmp_path / "home", [key.public])
    image = import_image(shelf, "trial-1", str(archive), lambda _: None, sign=key.sign)
    shelf.installable("trial-1")
    manifest = shelf.folder / "trial-1" / "manifest.json"
    text = manifest.read_text()
    chunk = next(iter(image.files.values())).chunks[0].sha256
    manifest.write_text(text.replace(chunk, "0" * 64))
    with pytest.raises(NoImage, match="does not hold"):
        shelf.installable("trial-1")


def test_a_signed_image_under_another_name_is_not_installed(key: Key, tmp_path: Path, archive: Path) -> None:
    shelf = Shelf(tmp_path / "home", [key.public])
    import_image(shelf, "trial-1", str(archive), lambda _: None, sign=key.sign)
    os.rename(shelf.folder / "trial-1", shelf.folder / "debian-12")
    with pytest.raises(NoImage, match="trial-1"):
        shelf.installable("debian-12")


def test_a_statement_can_be_signed_elsewhere(key: Key, tmp_path: Path, archive: Path) -> None:
    unsigned = Shelf(tmp_path / "home")
    image = import_image(unsigned, "trial-1", str(archive), lambda _: None)
    shelf = Shelf(tmp_path / "home", [key.public])
    with pytest.raises(NoImage, match="is not signed"):
        shelf.installable("trial-1")
    shelf.sign(image, key.sign(image))
    shelf.installable("trial-1")
    # The same file is the same image on another server, so the same signature holds there.
    other = Shelf(tmp_path / "other-home", [key.public])
    import_image(other, "trial-1", str(archive), lambda _: None, sign=lambda _: key.sign(image))
    other.installable("trial-1")
