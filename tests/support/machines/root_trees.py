"""Small root file systems that have what a machine needs to be installed with them, as empty files."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rackwright.provision.images.manifest import ImageFile
from rackwright.provision.images.shelf import ROOT_FILE, Shelf

VERSION = "6.1.0-99-amd64"
FILES = {
    f"boot/vmlinuz-{VERSION}": "kernel",
    f"boot/initrd.img-{VERSION}": "initrd",
    "etc/os-release": 'PRETTY_NAME="Trial Linux 1"\nID=trial\n',
    "etc/fstab": "UUID=0 / ext4 defaults 0 1\n",
    "etc/machine-id": "of another machine\n",
    "etc/ssh/ssh_host_ed25519_key": "a private key\n",
    "usr/bin/sh": "shell",
    "usr/bin/curl": "curl",
    "usr/bin/openssl": "openssl",
    "usr/bin/python3": "python",
    "usr/sbin/sshd": "sshd",
    "usr/lib/systemd/systemd": "systemd",
    "usr/lib/systemd/systemd-networkd": "networkd",
    "usr/lib/systemd/system/ssh.service": "[Unit]\n",
    "usr/lib/systemd/system/systemd-networkd.service": "[Unit]\n",
    "var/lib/dpkg/status": "Package: cloud-init\nStatus: install ok installed\nVersion: 22.4.2-1\n",
}
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "usr/sbin/init": "/lib/systemd/systemd"}


def make_root_tree(folder: Path, without: Sequence[str] = (), size: int = 0) -> Path:
    """Make a root file system in a folder; `size` bytes that do not compress are in one of its files."""
    for name, text in FILES.items():
        if name not in without:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (folder / "root").mkdir()
    (folder / "usr/sbin").mkdir(exist_ok=True)
    (folder / "usr/share").mkdir()
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    (folder / "usr/share/large").write_bytes(hashlib.shake_256(b"large").digest(size))
    (folder / "usr/share/same").hardlink_to(folder / "usr/share/large")
    (folder / "usr/bin/openssl").chmod(0o4755)
    return folder


def pack_tree(folder: Path, archive: Path, *options: str) -> Path:
    """Pack a root file system into a tar archive."""
    subprocess.run(["tar", "-C", str(folder), *options, "-cf", str(archive), "."], check=True)
    return archive


def put_trial_image(shelf: Shelf, name: str, *pieces: bytes) -> ImageFile:
    """Put an image on a shelf whose root file system is these pieces, which no machine could unpack."""
    chunks = tuple(shelf.chunks.put(piece) for piece in pieces)
    whole = b"".join(pieces)
    root = ImageFile(shelf.folder, len(whole), hashlib.sha256(whole).hexdigest(), chunks)
    with shelf.making(name, {"suite": "trial"}, {ROOT_FILE: root}):
        pass
    return root
