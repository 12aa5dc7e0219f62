"""Building images of operating systems: a root file system made with mmdebstrap, to be streamed to a disk.

The catalogue is data. A system is installed by unpacking its image and writing a boot loader, not by its own
installer: that takes a minute instead of ten, needs no mirror while machines install, and every machine gets the same.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rackwright.provision.images.packages import BuildFailed, Say, Source, require_programs, run_program
from rackwright.provision.images.shelf import ROOT_FILE, Shelf
from rackwright.provision.images.sledgehammer import Kernel


@dataclass(frozen=True)
class System:
    """An operating system that an image can be made of."""

    suite: str
    components: tuple[str, ...]
    kernels: dict[Kernel, str]
    packages: tuple[str, ...]


NEEDED = (
    *("systemd-sysv", "udev", "dbus", "kmod", "initramfs-tools", "zstd", "iproute2", "openssh-server", "openssl"),
    *("curl", "ca-certificates", "e2fsprogs", "systemd-boot"),
)
SYSTEMS = {
    "debian-12": System(
        "bookworm",
        ("main",),
        {Kernel.GENERIC: "linux-image-amd64", Kernel.CLOUD: "linux-image-cloud-amd64"},
        (*NEEDED, "python3-minimal"),
    ),
    "ubuntu-24.04": System(
        "noble",
        ("main", "universe"),
        {Kernel.GENERIC: "linux-image-generic", Kernel.CLOUD: "linux-image-virtual"},
        (*NEEDED, "python3-minimal"),
    ),
}

LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale")
NETWORK = "[Match]\nName=en* eth*\n\n[Network]\nDHCP=yes\n"
COMPRESSION = "-12"
"""Of zstd. Higher levels take far longer to compress, and no less to unpack."""


def build(shelf: Shelf, name: str, mirror: str | None, kernel: Kernel, say: Say) -> None:
    """Make the image of a system and put it on the shelf."""
    system = SYSTEMS.get(name)
    if system is None:
        raise BuildFailed(f"There is no recipe for {name!r}. There are: {', '.join(SYSTEMS)}.")
    require_programs("mmdebstrap", "zstd")
    source = Source(system.suite, mirror, system.components)
    with tempfile.TemporaryDirectory(prefix="rackwright-image-") as folder:
        network = Path(folder) / "10-dhcp.network"
        network.write_text(NETWORK)
        tar = Path(folder) / "root.tar"
        run_program(
            [*_mmdebstrap_command(system, kernel, network), source.suite, str(tar), *source.arguments(Path(folder))],
            say,
        )
        with shelf.making(name, {"suite": system.suite, "kernel": system.kernels[kernel]}) as image:
            subprocess.run(["zstd", "-q", COMPRESSION, "-T0", str(tar), "-o", str(image / ROOT_FILE)], check=True)
    say(f"{name}: {shelf.file(name, ROOT_FILE).size / 1e6:.1f} MB")


def _mmdebstrap_command(system: System, kernel: Kernel, network: Path) -> list[str]:
    packages = ",".join([*system.packages, system.kernels[kernel]])
    hooks = [
        f"copy-in {network} /etc/systemd/network",
        'chroot "$1" systemctl enable systemd-networkd.service ssh.service',
        # Each machine makes these files itself, or is given them.
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf',
        'find "$1"/var/log -type f -delete',
    ]
    return [
        *("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", f"--include={packages}"),
        *(f"--dpkgopt=path-exclude=/{folder}/*" for folder in LEFT_OUT),
        *('--aptopt=APT::Install-Recommends "false"',),
        '--essential-hook=mkdir -p "$1"/etc/initramfs-tools/conf.d; '
        'echo COMPRESS=zstd > "$1"/etc/initramfs-tools/conf.d/rackwright',
        *(f"--customize-hook={hook}" for hook in hooks),
    ]
