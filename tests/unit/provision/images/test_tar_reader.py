"""Archives that mean harm, or are broken where nobody looks: refused clearly, within bounds of memory."""

import gc
import io
import tarfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

from rackwright.provision.images import root_archive, tar_reader
from rackwright.provision.images.chunks import ChunkStore
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import RootArchive
from rackwright.provision.images.tar_reader import read_tar

END = b"\0" * 1024


def _info(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info


def _member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> bytes:
    info = _info(name, kind, len(content))
    return info.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


def _pax(attributes: dict[str, str], kind: bytes = tarfile.XHDTYPE) -> bytes:
    records = b"".join(_record(key, value.encode()) for key, value in attributes.items())
    return _member("pax", records, kind)


def _record(key: str, value: bytes) -> bytes:
    body = b" " + key.encode() + b"=" + value + b"\n"
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


class _Short(io.BytesIO):
    """A stream that gives a few bytes at a time, as a pipe may."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 100))


class _Endless:
    """A beginning, and then the same bytes again and again."""

    def __init__(self, beginning: bytes, again: bytes) -> None:
        self._left, self._again, self.sent = beginning, again, 0

    def read(self, size: int) -> bytes:
        while len(self._left) < size:
            self._left += self._again * (size // len(self._again) + 1)
        block, self._left = self._left[:size], self._left[size:]
        self.sent += size
        return block


def _write(store: ChunkStore, stream: object) -> RootArchive:
    archive = RootArchive(store)
    try:
        archive.write(read_tar(cast("IO[bytes]", stream)))
    finally:
        archive.abort()
    return archive


@pytest.fixture
def store(tmp_path: Path) -> ChunkStore:
    return ChunkStore(tmp_path / "chunks")


@pytest.mark.parametrize("kind", [io.BytesIO, _Short])
@pytest.mark.parametrize("zeros", [512, 1024, 10240, 100_000])
def test_zeros_end_an_archive(kind: type[io.BytesIO], zeros: int) -> None:
    stream = kind(_member("etc/a", b"content") + b"\0" * zeros)
    assert [entry.info.name for entry in read_tar(stream)] == ["etc/a"]
    assert stream.read() == b"", "all of it was read"


@pytest.mark.parametrize("kind", [io.BytesIO, _Short])
@pytest.mark.parametrize("distance", [0, 1, 511, 9000, 10240, 70_000])
def test_what_follows_the_end_is_refused(kind: type[io.BytesIO], distance: int) -> None:
    for more in (b"x", _member("etc/hidden", b"more")):
        stream = kind(_member("etc/a", b"content") + END + b"\0" * distance + more)
        with pytest.raises(BuildFailed, match="more behind the end"):
            list(read_tar(stream))


def test_zeros_without_end_are_refused() -> None:
    endless = _Endless(_member("etc/a"), b"\0" * 512)
    with pytest.raises(BuildFailed, match="of zeros"):
        list(read_tar(cast("IO[bytes]", endless)))
    assert endless.sent < 2 * tar_reader.LONGEST_END


def _global_attributes(number: int) -> bytes:
    attributes = {f"a{number}.{key}": "x" for key in range(500)}
    return _pax(attributes, tarfile.XGLTYPE) + _member("tmp/a")


def _endless_headers() -> Iterator[tuple[bytes, bytes]]:
    yield b"", _pax({"comment": "x"})
    yield b"", _pax({"comment": "x" * 500_000})
    yield b"".join(map(_global_attributes, range(4))), _member("tmp/a")
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a", "GNU.sparse.realsize": "1"}
    header = _info("a", size=1 << 35).tobuf(tarfile.GNU_FORMAT)
    yield _pax(sparse) + header + b"9999999999\n", b"1\n"


NAMES = ("headers of headers", "large headers of headers", "attributes for all files", "the map of a sparse file")


@pytest.mark.parametrize(("beginning", "again"), list(_endless_headers()), ids=NAMES)
def test_headers_without_end_are_refused(beginning: bytes, again: bytes) -> None:
    endless = _Endless(beginning, again)
    with pytest.raises(BuildFailed):
        list(read_tar(cast("IO[bytes]", endless)))
    assert endless.sent < 64 << 20


def test_files_without_end_are_refused_where_they_are_left_out_too(
    store: ChunkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_archive, "MOST_FILES", 1000)
    with pytest.raises(BuildFailed, match="more than 1000 files"):
        _write(store, _Endless(b"", _member("tmp/a")))


def test_a_member_is_forgotten_when_it_was_read() -> None:
    content = b"".join(_member(f"etc/{number}") for number in range(1000)) + END
    infos = [weakref.ref(entry.info) for entry in read_tar(io.BytesIO(content))]
    gc.collect()
    reader = read_tar(io.BytesIO(content))
    held = [weakref.ref(next(reader).info) for _ in range(900)]
    gc.collect()
    assert sum(info() is not None for info in held) < 10
    assert len(infos) == 1000


def test_names_are_bounded_with_all_the_folders_above_them(store: ChunkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_archive, "MOST_NAMES", 100_000)
    deep = _pax({"path": "/".join(["a"] * 1000)}) + _member("a")
    with pytest.raises(BuildFailed, match="names of the files"):
        _write(store, io.BytesIO(deep + END))


@pytest.mark.parametrize("attributes", [{"mtime": "nan"}, {"mtime": "inf"}, {"mtime": "-1"}, {"mtime": "9" * 400}])
def test_a_time_that_is_none_is_no_reason_to_break(store: ChunkStore, attributes: dict[str, str]) -> None:
    archive = _write(store, io.BytesIO(_pax(attributes) + _member("etc", kind=tarfile.DIRTYPE) + END))
    assert archive.facts.kinds == {"etc": tarfile.DIRTYPE}


@pytest.mark.parametrize("attributes", [{"size": "-1"}, {"size": "-1024"}, {"uid": "-1"}, {"gid": "9" * 40}])
def test_numbers_that_are_none_are_refused(store: ChunkStore, attributes: dict[str, str]) -> None:
    with pytest.raises(BuildFailed):
        _write(store, io.BytesIO(_pax(attributes) + _member("etc/a", b"content") + END))


@pytest.mark.parametrize("name", [b"etc/\xff\xfe", b"etc/caf\xe9", b"etc/\xed\xa0\x80"])
def test_a_name_that_is_no_utf_8_stays_as_it_is(
    store: ChunkStore, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.setattr(tarfile, "ENCODING", "iso8859-1")  # as of a host with another language
    content = _member("x" * len(name), b"content").replace(b"x" * len(name), name)
    header = bytearray(content[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    archive = _write(store, io.BytesIO(bytes(header) + content[512:] + END))
    assert [path.encode("utf-8", "surrogateescape") for path in archive.facts.kinds if path != "etc"] == [name]


def test_files_that_are_kept_in_memory_are_bounded_in_all(store: ChunkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_archive, "LARGEST_READ", 1000)
    monkeypatch.setattr(root_archive, "MOST_READ", 4500)
    archive = RootArchive(store, lambda name: name.startswith("wanted/"))
    archive.write(read_tar(io.BytesIO(_member("wanted/long", b"x" * 5000) + END)))
    assert archive.facts.contents == {"wanted/long": b"x" * 1000}
    many = b"".join(_member(f"wanted/{number}", b"x" * 1000) for number in range(4)) + END
    with pytest.raises(BuildFailed, match="say what the system is"):
        archive.write(read_tar(io.BytesIO(many)))
    archive.abort()


def test_all_that_is_read_counts_whatever_a_sparse_file_says_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_reader, "LARGEST_ARCHIVE", 1 << 20)
    sparse = _info("bomb", tarfile.GNUTYPE_SPARSE, 1 << 30).tobuf(tarfile.GNU_FORMAT)
    bomb = _Endless(sparse, b"\0" * 512)
    with pytest.raises(BuildFailed, match="to read in the archive"):
        assert all(entry.info.size == 0 for entry in read_tar(cast("IO[bytes]", bomb)))
    assert bomb.sent < 2 << 20
