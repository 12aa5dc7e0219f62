"""The tools of sledgehammer: programs and kernel modules that only the installs of some disk layouts need.

An installer fetches them when its layout asks for them. So the initramfs, which every discovery loads, stays small.
"""

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from rackwright.provision.images.tree import Tree

TOOLS_FILE = "tools.tar.zst"
PROGRAMS = ("sbin/mdadm", "sbin/lvm", "sbin/mkfs.xfs", "usr/sbin/grub-install")
PACKAGES = ("mdadm", "lvm2", "xfsprogs", "grub-pc-bin", "grub2-common", "grub-common")
LVM_COMMANDS = ("pvcreate", "pvs", "vgcreate", "vgs", "vgchange", "lvcreate", "lvs")
"""Names of links, by which `lvm` knows what to do; GRUB calls `vgs`."""
GRUB_FOLDER = "usr/lib/grub/i386-pc"
MODULES = ("drivers/md", "fs/xfs")
"""Folders below the kernel's module folder; the modules they depend on are added."""
LVM_CONFIG = """\
# There is no udev, so LVM makes its devices itself.
activation { udev_sync = 0 udev_rules = 0 }
backup { backup = 0 archive = 0 }
devices { use_devicesfile = 0 }
"""


def write_tools(tree: Tree, modules: Path, present: Iterable[str], to: Path) -> str:
    """Write the tools that an initramfs lacks as an archive, and return the archive's digest.

    `modules` is a folder with the modules; `present` are the libraries that the initramfs has.
    """
    plain = to.with_suffix("")
    with tarfile.open(plain, "w") as archive:
        for name, content in sorted(_files(tree, set(present)).items()):
            _add(archive, name, content, 0o755 if "bin/" in name or name.startswith("lib") else 0o644)
        for path in sorted(path for path in modules.rglob("*") if path.is_file()):
            _add(archive, str(path.relative_to(modules)), path.read_bytes(), 0o644)
        for command in LVM_COMMANDS:
            link = tarfile.TarInfo(f"sbin/{command}")
            link.type, link.linkname = tarfile.SYMTYPE, "lvm"
            archive.addfile(link)
    subprocess.run(["zstd", "-q", "-19", "-T0", "--rm", str(plain), "-o", str(to)], check=True)
    return hashlib.sha256(to.read_bytes()).hexdigest()


def _files(tree: Tree, present: set[str]) -> Mapping[str, bytes]:
    files = {"etc/lvm/lvm.conf": LVM_CONFIG.encode()}
    for program in PROGRAMS:
        files[program] = tree.path(program).read_bytes()
        libraries = tree.libraries(program)
        files |= {name: path.read_bytes() for name, path in libraries.items() if name not in present}
    for path in tree.path(GRUB_FOLDER).iterdir():
        if path.suffix in (".mod", ".img", ".lst") or path.name == "modinfo.sh":
            files[f"{GRUB_FOLDER}/{path.name}"] = path.read_bytes()
    return files


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
