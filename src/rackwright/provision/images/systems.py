"""Building images of operating systems: a root file system made with mmdebstrap, to be streamed to a disk.

The catalogue is data. A system is installed by unpacking its image and writing a boot loader, not by its own
installer: that takes a minute instead of ten, needs no mirror while machines install, and every machine gets the same.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rackwright.provision.images.boot_check import CLOUD_INIT_DISABLED
from rackwright.provision.images.disk_space import require_space
from rackwright.provision.images.packages import BuildFailed, Say, Source, require_programs
from rackwright.provision.images.root_archive import Entry
from rackwright.provision.images.root_images import NETWORK, NETWORK_FILE, Sign, put_root_image
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.sledgehammer_parts import Kernel
from rackwright.provision.images.tar_reader import read_tar


@dataclass(frozen=True)
class System:
    """An operating system that an image can be made of."""

    suite: str
    components: tuple[str, ...]
    kernels: dict[Kernel, str]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """What a person chose of an image's packages."""

    kernel: Kernel = Kernel.GENERIC
    packages: Sequence[str] = ()
    """Packages to add."""
    without: Sequence[str] = ()
    """Optional packages to leave out."""


NEEDED = (
    *("systemd-sysv", "udev", "dbus", "kmod", "initramfs-tools", "zstd", "iproute2", "openssh-server", "openssl"),
    *("curl", "ca-certificates", "e2fsprogs", "mdadm", "lvm2"),
    *("shim-signed", "grub-efi-amd64-signed", "efibootmgr"),  # UEFI starts them, with Secure Boot or without
)
CLOUD_INIT = "cloud-init"
OPTIONAL = (CLOUD_INIT,)
"""Packages that every system gets unless a person says without."""
DEBIAN_KERNELS = {Kernel.GENERIC: "linux-image-amd64", Kernel.CLOUD: "linux-image-cloud-amd64"}
SYSTEMS = {
    "debian-12": System("bookworm", ("main",), DEBIAN_KERNELS, (*NEEDED, "python3-minimal")),
    "debian-13": System("trixie", ("main",), DEBIAN_KERNELS, (*NEEDED, "python3-minimal")),
    "ubuntu-24.04": System(
        "noble",
        ("main", "universe"),
        {Kernel.GENERIC: "linux-image-generic", Kernel.CLOUD: "linux-image-virtual"},
        (*NEEDED, "python3-minimal"),
    ),
}
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")

LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale")
ARRAY_HOOK = """\
#!/bin/sh
# For initramfs-tools: the drivers of arrays are in the initramfs, and the kernel loads the one that an array asks for.
# mdadm has all of them loaded at each boot, and they begin with measuring how RAID 6 is computed fastest.
PREREQ="mdadm"
[ "$1" != prereqs ] || { echo "$PREREQ"; exit 0; }
[ ! -e "$DESTDIR/conf/modules" ] || sed -i -E '/^(linear|multipath|raid[0-9]+)$/d' "$DESTDIR/conf/modules"
"""
WORK_NEEDS = {Kernel.GENERIC: 2_500_000_000, Kernel.CLOUD: 1_200_000_000}
"""Bytes that mmdebstrap has on the disk at a time: packages, and what is unpacked of them."""
SHELF_NEEDS = {Kernel.GENERIC: 700_000_000, Kernel.CLOUD: 300_000_000}


def build(shelf: Shelf, name: str, mirror: str | None, choice: Choice, say: Say, *, sign: Sign | None = None) -> None:
    """Make the image of a system and put it on the shelf."""
    system = SYSTEMS.get(name)
    if system is None:
        raise BuildFailed(f"There is no recipe for {name!r}. There are: {', '.join(SYSTEMS)}.")
    packages = _chosen_packages(system, choice)
    require_programs("mmdebstrap", "zstd")
    require_space({Path(tempfile.gettempdir()): WORK_NEEDS[choice.kernel], shelf.folder: SHELF_NEEDS[choice.kernel]})
    source = Source(system.suite, mirror, system.components)
    about = {"suite": system.suite, "from": f"packages of {mirror or 'the sources of this host'}"}
    if choice.packages:
        about["added"] = ", ".join(choice.packages)
    with tempfile.TemporaryDirectory(prefix="rackwright-image-") as folder:
        network = Path(folder) / Path(NETWORK_FILE).name
        network.write_text(NETWORK)
        array_hook = Path(folder) / "rackwright-arrays"
        array_hook.write_text(ARRAY_HOOK)
        command = _mmdebstrap_command(packages, network, array_hook)
        midnight = time.time() // 86400 * 86400
        command += [source.suite, "-", *source.arguments(Path(folder))]
        with closing(_read_build(command, midnight, say)) as entries:
            put_root_image(shelf, name, about, entries, say, sign=sign, fresh_since=midnight)


def _chosen_packages(system: System, choice: Choice) -> list[str]:
    """Return the packages of an image; BuildFailed if a choice cannot be met."""
    for package in choice.packages:
        if not PACKAGE.fullmatch(package):
            raise BuildFailed(f"{package[:80]!r} is no name of a package.")
    for package in choice.without:
        if package not in OPTIONAL:
            raise BuildFailed(f"{package[:80]!r} cannot be left out; what can is: {', '.join(OPTIONAL)}.")
    optional = [package for package in OPTIONAL if package not in choice.without]
    return list(dict.fromkeys([*system.packages, *optional, system.kernels[choice.kernel], *choice.packages]))


def _read_build(command: Sequence[str], fresh_since: float, say: Say) -> Generator[Entry, None, None]:
    """Run a program that writes a tar archive, and yield what is in it; BuildFailed, with its last words, if it fails.

    Tools that can make the same bytes of the same content are told the time that `fresh_since` stands for.
    """
    say(f"$ {' '.join(command)}")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(fresh_since))}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
        assert process.stdout is not None
        with process, process.stdout as stream:
            broken = ""
            try:
                yield from read_tar(stream)
                stream.read()
            except BuildFailed as error:
                broken = str(error)
        if process.returncode != 0:
            raise BuildFailed(f"{command[0]} ended with status {process.returncode}:\n{_last_words(errors)}")
        if broken:
            raise BuildFailed(broken)


def _last_words(errors: IO[bytes]) -> str:
    errors.seek(0)
    return "\n".join(errors.read().decode(errors="replace").strip().splitlines()[-15:])


def _mmdebstrap_command(packages: Sequence[str], network: Path, array_hook: Path) -> list[str]:
    hooks = [
        f"copy-in {network} /etc/systemd/network",
        'chroot "$1" systemctl enable systemd-networkd.service ssh.service',
        # Each machine makes these files itself, or is given them.
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf',
        'find "$1"/var/log -type f -delete',
    ]
    if CLOUD_INIT in packages:
        # It does nothing on a machine for which there is no user-data: the server removes this where there is.
        hooks.append(f'mkdir -p "$1"/etc/cloud && : >"$1"/{CLOUD_INIT_DISABLED}')
    return [
        *("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", f"--include={','.join(packages)}"),
        *(f"--dpkgopt=path-exclude=/{folder}/*" for folder in LEFT_OUT),
        *('--aptopt=APT::Install-Recommends "false"',),
        '--essential-hook=mkdir -p "$1"/etc/initramfs-tools/conf.d; '
        'echo COMPRESS=zstd > "$1"/etc/initramfs-tools/conf.d/rackwright; '
        f'install -D -m 755 {array_hook} "$1"/etc/initramfs-tools/hooks/rackwright-arrays',
        *(f"--customize-hook={hook}" for hook in hooks),
    ]
