"""Putting an operating system's image on the shelf: its root file system in chunks, and what is known of it.

Images that are built and images that are imported take the same way from here on.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping

from rackwright.provision.images.boot_check import (
    CLOUD_INIT,
    CLOUD_INIT_DISABLED,
    check_bootable,
    cloud_init_schemas,
    describe_system,
    has_file,
    missing_comforts,
    wants_content,
)
from rackwright.provision.images.disk_space import full_disk_is_said, show_size
from rackwright.provision.images.manifest import Image, ImageFile, in_letters
from rackwright.provision.images.packages import Say
from rackwright.provision.images.root_archive import Entry, RootArchive
from rackwright.provision.images.shelf import ROOT_FILE, Shelf

NETWORK_FILE = "etc/systemd/network/10-dhcp.network"
NETWORK = "[Match]\nName=en* eth*\n\n[Network]\nDHCP=yes\n"
WANTS = "etc/systemd/system/multi-user.target.wants"
SERVICES = {
    "systemd-networkd.service": "usr/lib/systemd/system/systemd-networkd.service",
    "ssh.service": "usr/lib/systemd/system/ssh.service",
    "sshd.service": "usr/lib/systemd/system/sshd.service",
}
"""Services that an imported system must start, where it has them."""

Sign = Callable[[Image], str]
"""Returns the signature of an image."""


def put_root_image(
    shelf: Shelf,
    name: str,
    about: Mapping[str, str],
    entries: Iterable[Entry],
    say: Say,
    *,
    sign: Sign | None = None,
    fresh_since: float | None = None,
    imported: bool = False,
) -> Image:
    """Write a root file system into chunks and put it on the shelf; BuildFailed if machines cannot boot it.

    `imported`: it was made elsewhere, so what our own builds set up is added where it is missing.
    """
    told = {key: in_letters(value) for key, value in about.items()}
    chunked: dict[str, ImageFile] = {}
    with full_disk_is_said(shelf.folder), shelf.making(name, told, chunked, sign) as folder:
        archive = RootArchive(shelf.chunks, wants_content, fresh_since)
        try:
            archive.write(entries)
            check_bootable(archive.facts)
            if imported:
                _set_up(archive)
            told |= {key: in_letters(value) for key, value in describe_system(archive.facts).items()}
            told["made"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            chunked[ROOT_FILE] = archive.close()
        except BaseException:
            archive.abort()
            raise
        for file, content in cloud_init_schemas(archive.facts).items():
            (folder / file).write_bytes(content)
    for missing in missing_comforts(archive.facts):
        say(f"{name} has {missing}")
    if archive.facts.left_out:
        say(f"{archive.facts.left_out} device nodes and the like were left out")
    image = shelf.find(name)
    root = image.files[ROOT_FILE]
    say(f"{name}: {show_size(root.size)} in {len(root.chunks)} chunks")
    return image


def _set_up(archive: RootArchive) -> None:
    """Have a system that was made elsewhere ask DHCP, start its SSH server, and leave cloud-init alone until it is
    wanted."""
    facts = archive.facts
    networks = [path for path in facts.kinds if path.startswith("etc/systemd/network/") and path.endswith(".network")]
    if has_file(facts, "usr/lib/systemd/systemd-networkd") and not networks:
        archive.add_file(NETWORK_FILE, NETWORK.encode())
    for service, unit in SERVICES.items():
        if has_file(facts, unit):
            archive.add_link(f"{WANTS}/{service}", f"/{unit}")
    if has_file(facts, CLOUD_INIT) and CLOUD_INIT_DISABLED not in facts.kinds:
        archive.add_file(CLOUD_INIT_DISABLED, b"")
