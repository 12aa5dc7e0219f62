"""The sledgehammer image: a kernel and an initramfs from Debian's own packages, with a shell agent and no Python.

The agent's files are in `agent/`. The boot loaders that a machine's firmware fetches first come along with it: iPXE,
and for UEFI shim and GRUB, which are signed.
"""

import datetime
import platform
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from rackwright.provision.images import agent_version
from rackwright.provision.images.cpio import Cpio
from rackwright.provision.images.disk_space import require_space
from rackwright.provision.images.manifest import ARCHITECTURE, Image
from rackwright.provision.images.packages import Say, Source, fetch_packages, require_programs, run_program
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.sledgehammer_parts import (
    IPXE,
    MASTER_BOOT_RECORD,
    SIGNED_SUITE,
    Parts,
    signed_loaders,
    signed_packages,
)
from rackwright.provision.images.storage_tools import MODULES as TOOLS_MODULES
from rackwright.provision.images.storage_tools import TOOLS_FILE, write_tools
from rackwright.provision.images.tree import Tree

INITRD_BLOCK = 512
"""What the size of the initramfs is a multiple of."""
WORK_NEEDS, SHELF_NEEDS = 1_200_000_000, 200_000_000
"""Bytes that a build has on the disk at a time, and that its image takes."""


def build(shelf: Shelf, source: Source, parts: Parts, say: Say, sign: Callable[[Image], str] | None = None) -> None:
    """Make the image and put it on the shelf. Nothing of its packages is run that this host cannot run."""
    require_programs("mmdebstrap", "zstd", *(() if _is_native(parts) else ("depmod",)))
    require_space({Path(tempfile.gettempdir()): WORK_NEEDS, shelf.folder: SHELF_NEEDS})
    source = replace(source, architecture=parts.architecture)
    with tempfile.TemporaryDirectory(prefix="rackwright-image-") as folder:
        tree = Tree(Path(folder) / "tree")
        fetch_packages(parts.packages, source, tree.folder, say)
        signed = Tree(Path(folder) / "signed")
        fetch_packages(signed_packages(parts.architecture), replace(source, suite=SIGNED_SUITE), signed.folder, say)
        version = next((tree.folder / "lib/modules").iterdir()).name
        say(f"kernel {version}")
        with shelf.making(parts.name, _describe(version, source), sign=sign) as image:
            (image / "kernel").write_bytes(tree.path(f"boot/vmlinuz-{version}").read_bytes())
            for name, file in (IPXE if parts.architecture.has_bios else {}).items():
                (image / name).write_bytes(tree.path(file).read_bytes())
            for name, file in signed_loaders(parts.architecture).items():
                (image / name).write_bytes(signed.path(file).read_bytes())
            _write_archives(tree, Path(folder), version, parts, image)
    made = shelf.find(parts.name).files
    tools = f", and {made[TOOLS_FILE].size / 1e6:.1f} MB for layouts of several disks" if TOOLS_FILE in made else ""
    say(f"{parts.name}: {made['initrd'].size / 1e6:.1f} MB initramfs{tools}")


def _describe(version: str, source: Source) -> dict[str, str]:
    """Return what the image tells about itself."""
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about = {"kernel": version, "suite": source.suite, ARCHITECTURE: source.architecture.value, "made": made}
    return {**about, agent_version.KEY: str(agent_version.NUMBER)}


def _is_native(parts: Parts) -> bool:
    """Return whether this host runs the programs of the image."""
    return parts.architecture.kernel_name == platform.machine()


def _write_archives(tree: Tree, work: Path, version: str, parts: Parts, image: Path) -> None:
    """Write the initramfs, and the archive of tools that installers fetch when they need them."""
    modules = work / "modules"
    gathered = _gather_modules(tree, version, parts, parts.modules, modules)
    libraries = {name: path for program in parts.programs for name, path in tree.libraries(program).items()}
    digest = None
    if parts.architecture.is_installed:
        tools_modules = work / "tools-modules"
        _gather_modules(tree, version, parts, (*parts.modules, *TOOLS_MODULES), tools_modules)
        for name in gathered:
            (tools_modules / "lib/modules" / version / name).unlink()
        digest = write_tools(tree, tools_modules, libraries, image / TOOLS_FILE)
    plain = work / "initrd.cpio"
    with plain.open("wb") as out:
        archive = Cpio(out)
        archive.folder("dev")
        archive.device("dev/console", 5, 1)  # the kernel opens it before /init can make devices
        archive.file("bin/busybox", tree.path("bin/busybox").read_bytes(), 0o755)
        archive.link("bin/sh", "busybox")
        for program in parts.programs:
            archive.file(program, tree.path(program).read_bytes(), 0o755)
        for name, path in libraries.items():
            archive.file(name, path.read_bytes(), 0o755)
        if parts.architecture.has_bios:
            archive.file("lib/rackwright/mbr.bin", tree.path(MASTER_BOOT_RECORD).read_bytes())
        if digest is not None:
            archive.file("lib/rackwright/tools.sha256", f"{digest}  -\n".encode())
        archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        archive.file("etc/group", b"root:x:0:\n")
        archive.file("etc/shells", b"/bin/sh\n")
        archive.tree(modules)
        _add_agent(archive)
        archive.close()
    subprocess.run(["zstd", "-q", "-19", "-T0", str(plain), "-o", str(image / "initrd")], check=True)
    _pad(image / "initrd")


def _pad(archive: Path) -> None:
    """Fill an archive up with zeros, as the kernel has it, so that another may follow.

    UEFI loads the second initrd file just behind the first one, and the kernel reads no archive that begins elsewhere
    than at a multiple of four bytes: an installer would boot without its secret.
    """
    with archive.open("ab") as out:
        out.write(bytes(-out.tell() % INITRD_BLOCK))


def _add_agent(archive: Cpio) -> None:
    agent = files("rackwright.provision.images") / "agent"
    for part in sorted(agent.iterdir(), key=lambda path: path.name):
        if part.name == "init":
            archive.file("init", part.read_bytes(), 0o755)
        else:
            archive.file(f"lib/rackwright/{part.name}", part.read_bytes(), 0o755)
    report = files("rackwright.provision.images") / "installed"
    for part in sorted(report.iterdir(), key=lambda path: path.name):
        archive.file(f"lib/rackwright/installed/{part.name}", part.read_bytes(), 0o755)


def _gather_modules(tree: Tree, version: str, parts: Parts, folders: Sequence[str], into: Path) -> list[str]:
    """Copy kernel modules, those they depend on, and the tables that find them by hardware; return their paths."""
    all_modules = tree.folder / "lib/modules" / version
    _run_depmod(tree, parts, tree.folder, version)
    dependencies = {}
    for line in (all_modules / "modules.dep").read_text().splitlines():
        module, _, names = line.partition(":")
        dependencies[module] = names.split()
    chosen = [name for name in dependencies if any(name.startswith(f"kernel/{prefix}") for prefix in folders)]
    gathered = list(dict.fromkeys(name for module in chosen for name in (module, *dependencies[module])))
    for name in gathered:
        copy = into / "lib/modules" / version / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((all_modules / name).read_bytes())
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        (into / "lib/modules" / version / name).write_bytes((all_modules / name).read_bytes())
    _run_depmod(tree, parts, into, version)
    return gathered


def _run_depmod(tree: Tree, parts: Parts, folder: Path, version: str) -> None:
    """Write the tables of the modules in a folder: with the packages' own program, or with this host's where that is
    of another kind of machine. It reads modules of any."""
    if _is_native(parts):
        tree.run("bin/kmod", "depmod", "-b", str(folder), version)
    else:
        run_program(["depmod", "-b", str(folder), version], lambda _: None)
