"""What tests of importing images share: unpacking one as the installer does, and programs that note what is asked."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.machines.root_trees import VERSION

from rackwright.provision.images.shelf import ROOT_FILE, Shelf


def unpack_image(shelf: Shelf, name: str, into: Path) -> Path:
    """As the installer does."""
    into.mkdir()
    root = shelf.installable(name).files[ROOT_FILE]
    plain = subprocess.run(["zstd", "-q", "-dc"], input=b"".join(shelf.read(root)), stdout=subprocess.PIPE, check=True)
    subprocess.run(["busybox", "tar", "-x", "-C", str(into), "-f", "-"], input=plain.stdout, check=True)
    return into


def assert_is_tree(out: Path, tree: Path) -> None:
    for name in ("usr/share/large", "etc/os-release", f"boot/vmlinuz-{VERSION}"):
        assert (out / name).read_bytes() == (tree / name).read_bytes()
    assert (out / "usr/share/same").stat().st_ino == (out / "usr/share/large").stat().st_ino
    assert (out / "usr/bin/openssl").stat().st_mode & 0o7777 == 0o4755
    assert os.readlink(out / "usr/sbin/init") == "/lib/systemd/systemd"
    assert not (out / "etc/machine-id").exists()
    assert (out / "etc/systemd/network/10-dhcp.network").exists(), "it asks DHCP"
    assert os.readlink(out / "etc/systemd/system/multi-user.target.wants/ssh.service").endswith("/ssh.service")


def files_below(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    )


def put_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put a script in place of a program."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
