"""OCI images on this host, imported by the real skopeo and umoci, and those of people who mean harm."""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.machines.imported_images import assert_is_tree, files_below, put_program, unpack_image
from tests.support.machines.root_trees import make_root_tree

from rackwright.provision.images.importing import oci_images
from rackwright.provision.images.importing.sources import import_image
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "home")


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """An OCI image of two layers; the second removes a file of the first, and replaces one."""
    layout, tag = tmp_path / "layout", "oci-layout"
    subprocess.run(["umoci", "init", "--layout", layout], check=True)
    subprocess.run(["umoci", "new", "--image", f"{layout}:{tag}"], check=True)
    bundle = tmp_path / "bundle"
    subprocess.run(["umoci", "unpack", "--image", f"{layout}:{tag}", bundle], check=True, capture_output=True)
    subprocess.run(["rmdir", bundle / "rootfs"], check=False)
    make_root_tree(bundle / "rootfs", size=700_000)
    (bundle / "rootfs/etc/removed").write_text("x")
    (bundle / "rootfs/etc/changed").write_text("x")
    subprocess.run(
        ["umoci", "repack", "--refresh-bundle", "--image", f"{layout}:{tag}", bundle], check=True, capture_output=True
    )
    (bundle / "rootfs/etc/removed").unlink()
    (bundle / "rootfs/etc/changed").write_text("new")
    subprocess.run(["umoci", "repack", "--image", f"{layout}:{tag}", bundle], check=True, capture_output=True)
    return layout


@pytest.mark.parametrize("transport", ["oci", "oci-archive", "docker-archive"])
def test_an_oci_image_becomes_an_image(shelf: Shelf, tmp_path: Path, layout: Path, transport: str) -> None:
    source = f"oci:{layout}:oci-layout"
    if transport != "oci":
        archive = f"{transport}:{tmp_path / 'archive.tar'}:trial:1"
        subprocess.run(["skopeo", "copy", "-q", "--insecure-policy", source, archive], check=True)
        source = archive.removesuffix(":trial:1") if transport == "docker-archive" else archive
    import_image(shelf, "trial-1", source, lambda _: None)
    out = unpack_image(shelf, "trial-1", tmp_path / "out")
    assert_is_tree(out, tmp_path / "bundle/rootfs")
    assert not (out / "etc/removed").exists()
    assert (out / "etc/changed").read_text() == "new"


def test_the_digest_of_an_oci_image_is_that_of_its_manifest(shelf: Shelf, layout: Path) -> None:
    digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    source = f"oci:{layout}:oci-layout"
    with pytest.raises(BuildFailed, match="Nothing was imported"):
        import_image(shelf, "trial-1", source, lambda _: None, sha256="0" * 64)
    image = import_image(shelf, "trial-1", source, lambda _: None, sha256=digest)
    assert image.about["sha256"] == digest


def _put_layer(layout: Path, content: bytes) -> None:
    """Replace the last layer of an image; what was its digest is corrected everywhere, as its maker would."""
    index = json.loads((layout / "index.json").read_text())
    blobs = layout / "blobs/sha256"
    manifest = json.loads((blobs / index["manifests"][0]["digest"].removeprefix("sha256:")).read_text())
    config = json.loads((blobs / manifest["config"]["digest"].removeprefix("sha256:")).read_text())

    def put(blob: bytes) -> dict[str, object]:
        digest = hashlib.sha256(blob).hexdigest()
        (blobs / digest).write_bytes(blob)
        return {"digest": f"sha256:{digest}", "size": len(blob)}

    manifest["layers"][-1] |= {**put(content), "mediaType": "application/vnd.oci.image.layer.v1.tar"}
    config["rootfs"]["diff_ids"][-1] = manifest["layers"][-1]["digest"]
    manifest["config"] |= put(json.dumps(config).encode())
    index["manifests"][0] |= put(json.dumps(manifest).encode())
    (layout / "index.json").write_text(json.dumps(index))


def _sparse_bomb(tmp_path: Path) -> bytes:
    with (tmp_path / "bomb").open("wb") as file:
        file.truncate(1 << 40)
    return subprocess.run(["tar", "-C", tmp_path, "--sparse", "-c", "bomb"], stdout=subprocess.PIPE, check=True).stdout


def _climbing(_: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        link = tarfile.TarInfo("way")
        link.type, link.linkname = tarfile.SYMTYPE, "/tmp/rackwright-was-here"
        archive.addfile(link)
        for name in ("../../../../../../tmp/rackwright-was-here", "way/in", "/tmp/rackwright-was-here/in"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
    return out.getvalue()


@pytest.mark.parametrize(("content", "reason"), [(_sparse_bomb, "more than 64 GiB"), (_climbing, "umoci ended")])
def test_a_layer_that_means_harm_does_none(
    shelf: Shelf, tmp_path: Path, layout: Path, content: Callable[[Path], bytes], reason: str
) -> None:
    _put_layer(layout, content(tmp_path))
    with pytest.raises(BuildFailed, match=reason):
        import_image(shelf, "trial-1", f"oci:{layout}:oci-layout", lambda _: None)
    assert files_below(shelf.folder) == []
    assert not Path("/tmp/rackwright-was-here").exists()


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_of_an_image_that_is_too_much_is_refused_before_it_is_unpacked(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str, packed: bool
) -> None:
    """skopeo unpacks all of it into files, whatever they are."""
    put_program(tmp_path, monkeypatch, "skopeo", f"touch {tmp_path}/asked")
    bomb = tarfile.TarInfo("blobs/sha256/bomb")
    bomb.size = 1 << 40
    content = bomb.tobuf(tarfile.GNU_FORMAT) + b"\0" * 100_000
    (tmp_path / "archive").write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(BuildFailed, match="more than 64 GiB"):
        import_image(shelf, "trial-1", f"{transport}:{tmp_path / 'archive'}", lambda _: None)
    assert not (tmp_path / "asked").exists()


def test_what_skopeo_and_umoci_put_aside_lies_in_a_folder_that_is_removed(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Path
) -> None:
    for program in ("skopeo", "umoci"):
        real = shutil.which(program)
        script = f'echo "{program} $TMPDIR $*" >>{tmp_path}/asked; touch "$TMPDIR/aside"; exec {real} "$@"'
        put_program(tmp_path, monkeypatch, program, script)
    import_image(shelf, "trial-1", f"oci:{layout}:oci-layout", lambda _: None)
    first, second = (line.split() for line in (tmp_path / "asked").read_text().splitlines())
    assert (first[0], first[2:4], second[0]) == ("skopeo", ["--tmpdir", first[1]], "umoci")
    assert Path(first[1]).name.startswith("rackwright-import-")
    assert first[1] == second[1]
    assert not Path(first[1]).exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"manifests": 1}', '{"layers": [null]}', "[" * 100_000])
def test_documents_of_an_image_that_cannot_be_read_are_refused_in_words(tmp_path: Path, content: str) -> None:
    layout = tmp_path / "layout"
    (layout / "blobs/sha256").mkdir(parents=True)
    (layout / "index.json").write_text(content)
    (layout / "blobs/sha256" / ("0" * 64)).write_text(content)
    with pytest.raises(BuildFailed):
        oci_images._check_layers(layout, f"sha256:{'0' * 64}", tmp_path, tmp_path)
    with pytest.raises(BuildFailed):
        oci_images._read_digest(layout)
