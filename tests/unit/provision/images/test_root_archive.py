"""Root file systems become chunks that are the same wherever the same files are, and never leave their root."""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.support.machines.root_trees import make_root_tree, pack_tree

from rackwright.provision.images import root_archive
from rackwright.provision.images.chunks import ChunkStore
from rackwright.provision.images.manifest import ImageFile
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import Entry, RootArchive, RootFacts
from rackwright.provision.images.tar_reader import read_tar


def _write(store: ChunkStore, stream: IO[bytes]) -> tuple[ImageFile, RootFacts]:
    archive = RootArchive(store, lambda name: name == "etc/os-release")
    try:
        archive.write(read_tar(stream))
        return archive.close(), archive.facts
    finally:
        archive.abort()


def _unpack(store: ChunkStore, file: ImageFile, into: Path) -> None:
    """As the installer does: with zstd and busybox's tar."""
    into.mkdir()
    content = b"".join(store.read(file.chunks))
    plain = subprocess.run(["zstd", "-q", "-dc"], input=content, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["busybox", "tar", "-x", "-C", str(into), "-f", "-"], input=plain, check=True)


def _tar(*infos: tarfile.TarInfo) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(b"x" * info.size))
    out.seek(0)
    return out


def _info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


@pytest.fixture
def store(tmp_path: Path) -> ChunkStore:
    return ChunkStore(tmp_path / "chunks")


def test_what_goes_in_comes_out(store: ChunkStore, tmp_path: Path) -> None:
    tree = make_root_tree(tmp_path / "tree", size=3_000_000)
    long_name = "/".join(["usr", *(["a-folder-with-quite-a-name"] * 8), "file"])
    (tree / long_name).parent.mkdir(parents=True)
    (tree / long_name).write_text("deep")
    with pack_tree(tree, tmp_path / "tar").open("rb") as stream:
        file, facts = _write(store, stream)
    _unpack(store, file, tmp_path / "out")
    out = tmp_path / "out"
    assert (out / "usr/share/large").read_bytes() == (tree / "usr/share/large").read_bytes()
    assert (out / "usr/share/same").stat().st_ino == (out / "usr/share/large").stat().st_ino
    assert (out / long_name).read_text() == "deep"
    assert os.readlink(out / "sbin") == "usr/sbin"
    assert (out / "usr/bin/openssl").stat().st_mode & 0o7777 == 0o4755
    assert facts.contents["etc/os-release"] == (tree / "etc/os-release").read_bytes()
    for name in ("etc/machine-id", "etc/ssh/ssh_host_ed25519_key"):
        assert not (out / name).exists(), "each machine has its own"


def test_a_piece_is_never_larger_than_it_may_be(store: ChunkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_archive, "MOST_PIECE", 100_000)
    file, _ = _write(store, _tar(_info("large", size=450_000)))
    assert len(file.chunks) == 5
    plain = subprocess.run(["zstd", "-dc"], input=b"".join(store.read(file.chunks)), capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(plain.stdout)) as archive:
        assert archive.getmember("large").size == 450_000


def test_two_archives_share_the_chunks_behind_a_file_that_only_one_has(
    store: ChunkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_archive, "LEAST_PIECE", 50_000)
    monkeypatch.setattr(root_archive, "CHOSEN", 4)
    files = [_info(f"usr/share/file-{number:03}", size=5000) for number in range(200)]
    first, _ = _write(store, _tar(*files))
    second, _ = _write(store, _tar(_info("etc/more", size=33_333), *files))
    assert len(first.chunks) > 10
    assert len(set(first.chunks) - set(second.chunks)) <= 3


OUT_OF_THE_TREE = {
    "a name that climbs": [_info("../escaped")],
    "a name that climbs in the middle": [_info("etc/../../escaped")],
    "a file through a link": [_info("etc", tarfile.SYMTYPE, "/tmp"), _info("etc/escaped")],
    "a file deep below a link": [_info("etc", tarfile.SYMTYPE, ".."), _info("etc/a/b/escaped")],
    "a folder that a link replaces": [_info("etc/passwd"), _info("etc", tarfile.SYMTYPE, "/tmp")],
    "a file through a file": [_info("etc"), _info("etc/escaped")],
    "a second file in place of a link": [_info("file", tarfile.SYMTYPE, "/etc/shadow"), _info("file", size=3)],
    "a hard link out of the tree": [_info("shadow", tarfile.LNKTYPE, "../../etc/shadow")],
    "a hard link to what is not there": [_info("shadow", tarfile.LNKTYPE, "/etc/shadow")],
    "a hard link to a link": [_info("a", tarfile.SYMTYPE, "/etc/shadow"), _info("b", tarfile.LNKTYPE, "a")],
}


@pytest.mark.parametrize("infos", OUT_OF_THE_TREE.values(), ids=OUT_OF_THE_TREE)
def test_what_leads_out_of_the_tree_is_refused(store: ChunkStore, infos: list[tarfile.TarInfo]) -> None:
    with pytest.raises(BuildFailed, match="in the image"):
        _write(store, _tar(*infos))


def test_a_name_from_the_root_is_one_below_the_root(store: ChunkStore, tmp_path: Path) -> None:
    file, facts = _write(store, _tar(_info("/etc/passwd", size=3)))
    assert set(facts.kinds) == {"etc", "etc/passwd"}
    _unpack(store, file, tmp_path / "out")
    assert (tmp_path / "out/etc/passwd").read_bytes() == b"xxx"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z"])
def test_device_nodes_are_left_out(store: ChunkStore, tmp_path: Path, kind: bytes) -> None:
    file, facts = _write(store, _tar(_info("etc/node", kind), _info("etc/file", size=1)))
    _unpack(store, file, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out/etc").iterdir() if not path.is_file()] == []
    assert (tmp_path / "out/etc/file").exists()
    assert facts.left_out == 1


def test_what_a_running_system_fills_is_left_out(store: ChunkStore) -> None:
    _, facts = _write(store, _tar(_info("dev", tarfile.DIRTYPE), _info("dev/file", size=1), _info("proc/1/x", size=1)))
    assert set(facts.kinds) == {"dev"}


class _Zeros(io.RawIOBase):
    """An archive that never ends: one file that says it has so many bytes, and zeros."""

    def __init__(self, size: int) -> None:
        info = _info("bomb")
        info.size = size
        self._header: bytes = info.tobuf(tarfile.GNU_FORMAT)
        self.sent = 0

    def read(self, size: int = -1) -> bytes:
        block = self._header[:size] + b"\0" * max(size - len(self._header), 0)
        self._header = self._header[size:]
        self.sent += len(block)
        return block


def test_an_image_larger_than_may_be_is_refused_before_it_is_read(store: ChunkStore) -> None:
    bomb = _Zeros(1 << 42)
    with pytest.raises(BuildFailed, match="more than 64 GiB"):
        _write(store, bomb)  # type: ignore[arg-type]
    assert bomb.sent < 1 << 20


def test_sparse_files_count_with_the_size_that_they_say(store: ChunkStore, tmp_path: Path) -> None:
    with (tmp_path / "bomb").open("wb") as file:
        file.truncate(1 << 40)
    subprocess.run(["tar", "-C", tmp_path, "--sparse", "-cf", tmp_path / "tar", "bomb"], check=True)
    assert (tmp_path / "tar").stat().st_size < 100_000
    with (tmp_path / "tar").open("rb") as stream, pytest.raises(BuildFailed, match="more than 64 GiB"):
        _write(store, stream)


def test_what_is_left_out_counts_too(store: ChunkStore) -> None:
    bomb = _Zeros(0)
    info = _info("dev/bomb")
    info.size = 1 << 42
    bomb._header = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(BuildFailed, match="more than 64 GiB"):
        _write(store, bomb)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_that_would_fill_the_memory_is_refused(store: ChunkStore, kind: bytes) -> None:
    bomb = _Zeros(0)
    info = _info("header", kind)
    info.size = 1 << 33
    bomb._header = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(BuildFailed, match="header of the archive"):
        _write(store, bomb)  # type: ignore[arg-type]


def _broken_archives() -> Iterator[tuple[str, bytes]]:
    whole = _tar(_info("etc/a", size=600), _info("etc/b", size=600)).getvalue()
    yield "nothing", b""
    yield "cut off in a file", whole[:700]
    yield "cut off between files", whole[: 512 + 1024]
    yield "cut off in a header", whole[: 512 + 1024 + 100]
    yield "a broken header", whole[: 512 + 1024] + b"x" * 512 + whole[512 + 1024 + 512 :]
    yield "something else", b"x" * 10240


@pytest.mark.parametrize(("_name", "content"), list(_broken_archives()))
def test_a_broken_archive_is_no_shorter_one(store: ChunkStore, _name: str, content: bytes) -> None:
    with pytest.raises(BuildFailed):
        _write(store, io.BytesIO(content))


def test_a_file_of_ours_lies_in_folders_of_the_image(store: ChunkStore) -> None:
    archive = RootArchive(store)
    archive.write([Entry(_info("etc", tarfile.DIRTYPE))])
    archive.add_file("etc/systemd/network/10.network", b"[Match]\n")
    archive.add_link("etc/systemd/system/wants/a.service", "/usr/a.service")
    archive.add_link("etc/systemd/system/wants/a.service", "/usr/b.service")
    archive.close()
    assert archive.facts.kinds["etc/systemd/network"] == tarfile.DIRTYPE
    with pytest.raises(BuildFailed, match="leads through"):
        archive.add_file("etc/systemd/network/10.network/more", b"")
