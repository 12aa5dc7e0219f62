"""What a root file system must have to be installed on a machine and to be reached there, and what it has."""

import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from rackwright.domain.architectures import Architecture
from rackwright.domain.catalogue import Json
from rackwright.domain.installs.request import SystemImage
from rackwright.provision.images.manifest import ARCHITECTURE
from rackwright.provision.images.packages import BuildFailed
from rackwright.provision.images.root_archive import RootFacts
from rackwright.provision.images.shelf import NoImage, Shelf

MOST_LINKS = 40
KERNEL = re.compile(r"boot/vmlinuz-(?P<version>[^/]+)")
INITRD = re.compile(r"boot/initrd\.img-(?P<version>[^/]+)")
CLOUD_INIT = "usr/bin/cloud-init"
CLOUD_INIT_DISABLED = "etc/cloud/cloud-init.disabled"
SCHEMA = re.compile(
    r"usr/lib/python3[^/]*/(dist|site)-packages/cloudinit/config/schemas/"
    r"schema-(?P<kind>cloud-config|network-config)-v?(?P<version>\d+)\.json"
)
OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
DPKG_STATUS = "var/lib/dpkg/status"
FIRST_PROGRAM = ("usr/lib/systemd/systemd", "lib/systemd/systemd")
"""Where the program is that every system runs: its head says for which kind of machine it is."""
NETWORKD = "usr/lib/systemd/systemd-networkd"
NETWORK_MANAGERS = (NETWORKD, "usr/sbin/NetworkManager", "usr/sbin/ifup")
SHIM, GRUB = "usr/lib/shim/shimx64.efi.signed", "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
UEFI_LOADERS = (SHIM, GRUB)
FIRMWARE = "firmware"
"""The key in what an image tells about itself that says from which firmware alone its systems start."""
BIOS_ONLY = "BIOS"
ARRAYS_HOOK = "etc/initramfs-tools/hooks/rackwright-arrays"
"""What our builds put into the initial file system, so that it assembles RAID."""
MDADM, LVM_PROGRAM = ("usr/sbin/mdadm", "sbin/mdadm"), ("usr/sbin/lvm", "sbin/lvm")
"""Where the programs are: one of these."""
RAID, LVM = "raid", "lvm"
"""The keys that say what an image lacks for layouts with arrays and volumes."""
DATA_ONLY, NONE = "data only", "none"


@dataclass(frozen=True)
class Need:
    """Something that a system must have, and why."""

    paths: tuple[str, ...]
    """One of these is enough."""
    lacking: str
    """How its absence is said."""


NEEDS = (
    Need(("sbin/init",), "has no init (/sbin/init): it would not start"),
    Need(("usr/lib/systemd/systemd",), "has no systemd: its first report to the server is a unit of systemd"),
    Need(("usr/sbin/sshd",), "has no SSH server (/usr/sbin/sshd): it could not be reached"),
    Need(("usr/bin/curl",), "has no curl: it could not report to the server"),
    Need(("usr/bin/openssl",), "has no openssl: it could not sign its report"),
    Need(("bin/sh",), "has no shell (/bin/sh)"),
    Need(NETWORK_MANAGERS, "has nothing that brings up its network (systemd-networkd, NetworkManager or ifupdown)"),
)
FOLDERS = ("boot", "etc", "root", "usr", "var")


def check_bootable(facts: RootFacts) -> None:
    """Raise BuildFailed, with all that a root file system lacks, if machines cannot be installed with it."""
    lacking = [need.lacking for need in NEEDS if not _has_any(facts, need.paths)]
    kernels, initrds = _versions(facts, KERNEL), _versions(facts, INITRD)
    if not kernels:
        lacking.insert(0, "has no kernel (/boot/vmlinuz-VERSION): it cannot be installed on a machine")
    elif not initrds:
        lacking.insert(0, "has no initial file system beside its kernel (/boot/initrd.img-VERSION): it would not boot")
    elif kernels[-1] != initrds[-1]:
        lacking.insert(0, f"has the kernel {kernels[-1]}, and an initial file system for {initrds[-1]}")
    for folder in FOLDERS:
        if facts.kinds.get(folder, tarfile.DIRTYPE) != tarfile.DIRTYPE:
            lacking.append(f"has no folder /{folder}, but something else of that name")
    if lacking:
        raise BuildFailed("This is no system that can be installed. It " + "; it ".join(lacking) + ".")


def describe_system(facts: RootFacts) -> dict[str, str]:
    """Return what a root file system is, for people: its name, kernel, and the versions of packages that matter."""
    about = {}
    release = next((facts.contents[path] for path in OS_RELEASE if facts.contents.get(path)), b"")
    if name := re.search(rb'^PRETTY_NAME="?([^"\n]{1,100})', release, re.MULTILINE):
        about["system"] = name[1].decode(errors="replace")
    if kernels := _versions(facts, KERNEL):
        about["kernel"] = kernels[-1]
    versions = read_package_versions(facts.contents.get(DPKG_STATUS, b""))
    if architecture := _read_architecture(facts):
        about[ARCHITECTURE] = architecture
    if has_file(facts, CLOUD_INIT):
        about["cloud-init"] = versions.get("cloud-init", "of unknown version")
    if versions:
        about["packages"] = str(len(versions))
    if not all(has_file(facts, path) for path in UEFI_LOADERS):
        about[FIRMWARE] = BIOS_ONLY
    if not has_file(facts, ARRAYS_HOOK):
        about[RAID] = DATA_ONLY if _has_any(facts, MDADM) else NONE
    if not _has_any(facts, LVM_PROGRAM):
        about[LVM] = NONE
    return about


def _read_architecture(facts: RootFacts) -> str | None:
    """Return the kind of machine that a system is for; None if its first program does not tell."""
    head = next((facts.contents[path] for path in FIRST_PROGRAM if facts.contents.get(path)), b"")[:20]
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    known = (architecture.value for architecture in Architecture if number in architecture.elf_machines)
    return next(known, f"a processor of another kind (ELF machine {number})")


def describe_abilities(system: str, about: Mapping[str, str]) -> SystemImage:
    """Return what a system can be installed on, from what its image tells; one that tells nothing can all, on amd64."""
    return SystemImage(
        system,
        starts_by_uefi=about.get(FIRMWARE) != BIOS_ONLY,
        starts_from_raid=RAID not in about,
        assembles_raid=about.get(RAID) != NONE,
        has_lvm=about.get(LVM) != NONE,
        architecture=about.get(ARCHITECTURE, Architecture.AMD64.value),
    )


def read_abilities(shelf: Shelf, system: str) -> SystemImage | None:
    """Return what the system of an image can be installed on; None if there is no such image."""
    try:
        return describe_abilities(system, shelf.find(system).about)
    except NoImage:
        return None


def check_firmware(system: str, about: Mapping[str, str], firmware: Json) -> None:
    """Raise NoImage if the systems of an image do not start on a machine; `firmware` is its own: `bios` or `uefi`.

    The installer finds that out only when the disks are wiped.
    """
    if firmware == "uefi" and about.get(FIRMWARE) == BIOS_ONLY:
        raise NoImage(
            f"The machine boots by UEFI, and {system} starts only from a BIOS: its image lacks the packages "
            "shim-signed and grub-efi-amd64-signed. Install another system, import an image that has them, or have "
            "the machine boot by BIOS and be discovered again."
        )


def missing_comforts(facts: RootFacts) -> list[str]:
    """Return what a system can do without, and what cannot be done with it then."""
    comforts = {
        "no Python 3: states cannot be applied to it": ("usr/bin/python3",),
        "no shim and signed GRUB: it can be installed only on machines that boot by BIOS": UEFI_LOADERS,
        "nothing that assembles RAID as our own builds have it: install it with the layout flat": (ARRAYS_HOOK,),
        "no systemd-networkd: `provisioner-network` has no effect on it": (NETWORKD,),
    }
    missing = [text for text, paths in comforts.items() if not all(has_file(facts, path) for path in paths)]
    return missing if _has_any(facts, LVM_PROGRAM) else [*missing, "no LVM: install it with a layout without it"]


def wants_content(name: str) -> bool:
    """Return whether the content of a file says something of the system that is looked at."""
    return name in (*OS_RELEASE, DPKG_STATUS, *FIRST_PROGRAM) or SCHEMA.fullmatch(name) is not None


def cloud_init_schemas(facts: RootFacts) -> dict[str, bytes]:
    """Return the newest of cloud-init's own schemas for each kind of document, by the name it has in an image."""
    newest: dict[str, tuple[int, bytes]] = {}
    for path, content in facts.contents.items():
        if schema := SCHEMA.fullmatch(path):
            candidate = (int(schema["version"]), content)
            newest[schema["kind"]] = max(newest.get(schema["kind"], candidate), candidate)
    return {f"{kind}.schema.json": content for kind, (_, content) in newest.items()}


def read_package_versions(status: bytes) -> dict[str, str]:
    """Return the versions of the packages that dpkg's list says are installed, by name."""
    versions = {}
    for stanza in status.decode(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.{1,200})$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed") and "Package" in fields:
            versions[fields["Package"]] = fields.get("Version", "")
    return versions


def has_file(facts: RootFacts, path: str) -> bool:
    """Return whether a path leads to a file, links followed as the system itself would."""
    parts, at, links = list(reversed(PurePosixPath(path).parts)), "", 0
    while parts:
        part = parts.pop()
        if part == "/":
            at = ""
        elif part == "..":
            at = at.rpartition("/")[0]
        else:
            step = f"{at}/{part}".lstrip("/")
            if target := facts.links.get(step):
                links += 1
                if links > MOST_LINKS:
                    return False
                parts += reversed(PurePosixPath(target).parts)
            else:
                at = step
    return facts.kinds.get(at) in (tarfile.REGTYPE, tarfile.LNKTYPE)


def _has_any(facts: RootFacts, paths: Iterable[str]) -> bool:
    return any(has_file(facts, path) for path in paths)


def _versions(facts: RootFacts, pattern: re.Pattern[str]) -> list[str]:
    """Return the versions in the names of files, the newest last."""
    found = (match["version"] for path in facts.kinds if (match := pattern.fullmatch(path)))
    return sorted(found, key=_version_order)


def _version_order(version: str) -> list[tuple[list[int], int]]:
    """Return what versions are compared by, as `sort -V` and dpkg do: 6.1.0-9 is older than 6.1.0-18.

    Numbers count as numbers. Of what is between them, `~` comes before the end, and letters come before all else.
    """
    parts = re.findall(r"([^0-9]*)([0-9]*)", version)
    return [([*map(_letter_order, text), 0], int(number or 0)) for text, number in parts]


def _letter_order(letter: str) -> int:
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 0x110000
