"""The cpio archive that the kernel unpacks, read back by the letter of its format."""

import io
import stat
from pathlib import Path

from rackwright.provision.images.cpio import Cpio


def _entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Return the entries of an archive: name -> (mode, content)."""
    entries: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        start = at + 110 + name_size + -(110 + name_size) % 4
        if name == "TRAILER!!!":
            return entries
        entries[name] = (mode, archive[start : start + size])
        at = start + size + -size % 4


def test_what_is_put_in_comes_out_with_the_folders_above_it() -> None:
    out = io.BytesIO()
    archive = Cpio(out)
    archive.file("rackwright/secret", b"abc", 0o600)
    archive.link("bin/sh", "busybox")
    archive.device("dev/console", 5, 1)
    archive.close()
    entries = _entries(out.getvalue())
    assert list(entries) == ["rackwright", "rackwright/secret", "bin", "bin/sh", "dev", "dev/console"]
    assert entries["rackwright/secret"] == (stat.S_IFREG | 0o600, b"abc")
    assert entries["bin/sh"][1] == b"busybox"
    assert stat.S_ISCHR(entries["dev/console"][0])
    assert stat.S_ISDIR(entries["rackwright"][0])


def test_a_tree_keeps_its_modes_and_links(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/tool").write_bytes(b"#!")
    (tmp_path / "lib/tool").chmod(0o755)
    (tmp_path / "lib/again").symlink_to("tool")
    out = io.BytesIO()
    archive = Cpio(out)
    archive.tree(tmp_path, "usr")
    archive.close()
    entries = _entries(out.getvalue())
    assert entries["usr/lib/tool"] == (stat.S_IFREG | 0o755, b"#!")
    assert entries["usr/lib/again"][1] == b"tool"


def test_the_same_content_is_the_same_archive(tmp_path: Path) -> None:
    archives = []
    for _ in range(2):
        out = io.BytesIO()
        archive = Cpio(out)
        archive.file("a", b"1")
        archive.close()
        archives.append(out.getvalue())
    assert archives[0] == archives[1]
