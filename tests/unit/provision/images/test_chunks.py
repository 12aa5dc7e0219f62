"""Chunks are stored once, complete or not at all, and found by digests only."""

import hashlib
from pathlib import Path

import pytest

from rackwright.provision.images.chunks import ChunkStore


def test_the_same_bytes_are_one_chunk(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path)
    assert store.put(b"bytes") == store.put(b"bytes")
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_a_chunk_that_was_damaged_on_the_disk_is_written_again(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path)
    chunk = store.put(b"bytes")
    path = store.path(chunk.sha256)
    assert path is not None
    path.write_bytes(b"bits!")
    store.put(b"bytes")
    assert path.read_bytes() == b"bytes"


@pytest.mark.parametrize("digest", ["", "..", "../../secret", "A" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n", "a" * 64])
def test_what_is_no_digest_of_a_chunk_finds_nothing(tmp_path: Path, digest: str) -> None:
    (tmp_path / "secret").write_text("x")
    assert ChunkStore(tmp_path / "chunks").path(digest) is None


@pytest.mark.parametrize(("first", "end"), [(0, None), (0, 9), (2, 4), (3, 7), (4, 8), (8, 9), (9, 9), (0, 0)])
def test_any_part_of_a_file_can_be_read(tmp_path: Path, first: int, end: int | None) -> None:
    store = ChunkStore(tmp_path)
    chunks = [store.put(part) for part in (b"012", b"3", b"4567", b"8")]
    assert b"".join(store.read(chunks, first, end)) == b"012345678"[first:end]


def test_what_nobody_uses_is_removed_and_what_was_left_half_written(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path)
    used, unused = store.put(b"used"), store.put(b"unused")
    half = tmp_path / used.sha256[:2] / ".half"
    half.write_bytes(b"12")
    assert store.remove_unused({used.sha256}) == len(b"unused") + 2
    assert store.path(used.sha256) is not None
    assert store.path(unused.sha256) is None
    assert not half.exists()


def test_a_chunk_is_named_by_its_sha256(tmp_path: Path) -> None:
    assert ChunkStore(tmp_path).put(b"bytes").sha256 == hashlib.sha256(b"bytes").hexdigest()
