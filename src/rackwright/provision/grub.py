"""The boot scripts that the server gives to GRUB, which UEFI firmware starts through shim, with Secure Boot or without.

GRUB comes signed, so its scripts are the only thing of ours that it reads. All that goes into a script is checked
against an allow-list first, and stands in quotes within which nothing has a meaning.

Nothing is started while a script is still open: GRUB would never close its connection then, and opens the next one from
the same port after a reset, which the server would take for a part of the old one until that has run out. So the script
of a machine only says what is to be done, and the menu of the first one does it: by then GRUB has closed both.
"""

import re
from typing import Final

from rackwright.domain.architectures import build_command
from rackwright.domain.errors import Invalid
from rackwright.provision.network_boot import HOST, NetworkBoot, check_names

FIRST_SCRIPT_NAME = "grub/grub.cfg"
"""What Debian's signed GRUB for networks reads first: its own name for it, on the server that it came from."""
BOOT_MAC: Final = "$net_default_mac"
"""GRUB's own word for the MAC that it boots by."""
PROCESSOR: Final = "$grub_cpu"
"""GRUB's own word for the kind of processor that it runs on."""
_WORD = re.compile(r"[A-Za-z0-9_.,:=/@+\[\]()-]+")
_DISK_MARK = re.compile(r"[0-9a-f]{32}")
MARKS = "/EFI/rackwright"
"""The folder on a disk's firmware partition where the installer leaves its mark."""

_START = "start_machine"
"""The function that the script of a machine defines, and the first script calls."""
_MENU = f"""\
set timeout=0
menuentry Rackwright {{
  {_START}
  echo 'Rackwright could not be reached, or has no image that this machine starts. Trying again in 10 s.'
  sleep 10
  reboot
}}
"""


def render_first_grub_script(host: str) -> str:
    """Return the script that every machine gets from the server `host`: it asks again, by the machine's MAC and
    with its kind of processor."""
    return f'source "{_device(host)}/boot/{BOOT_MAC}/grub.cfg?cpu={PROCESSOR}"\n{_MENU}'


def render_grub_script(boot: NetworkBoot) -> str:
    """Return the GRUB script for a boot."""
    check_names(boot)
    body = _local_script(boot) if boot.is_local else _network_script(boot)
    return f"# bootenv {boot.bootenv}\nfunction {_START} {{\n{body}}}\n"


def _network_script(boot: NetworkBoot) -> str:
    server = _device(boot.host)
    kernel = _quote(f"{server}{boot.kernel}")
    arguments = " ".join(_argument(word) for word in boot.kernel_arguments(BOOT_MAC))
    initrds = " ".join(_quote(f"{server}{path}") for path in boot.initrds.values())
    starts = f"if linux {kernel} {arguments}; then\n  if initrd {initrds}; then\n    boot\n  fi\nfi\n"
    # Words of ours alone, in which no character means anything.
    made_by = build_command(boot.architecture.sledgehammer)
    return f"{starts}echo 'What {boot.architecture} machines boot is made by: {made_by}'\n"


def _local_script(boot: NetworkBoot) -> str:
    """Return a script that starts what the machine's own disk has.

    Firmware that a loader returns to may stop and ask what to do, so the disk's loader is started from here: that of
    the disk which was marked by the machine's install, else of any, else the firmware goes on.
    """
    loader = boot.architecture.fallback_loader
    files = [loader]
    if boot.disk_mark:
        if not _DISK_MARK.fullmatch(boot.disk_mark):
            raise Invalid("This is no mark of a disk.")
        files.insert(0, f"{MARKS}/{boot.disk_mark}")
    tries = [
        f"if search --no-floppy --set=root --file '{file}'; then\n  chainloader '{loader}'\n  boot\nfi\n"
        for file in files
    ]
    return "".join([*tries, "exit\n"])


def _device(host: str) -> str:
    """Return GRUB's name of a server, from which it fetches files by HTTP."""
    if not HOST.fullmatch(host):
        raise Invalid("The name this server was asked by is none that can be told to a machine.")
    return f"(http,{host})"


def _argument(word: str) -> str:
    """Return an argument of the kernel; GRUB itself fills in the MAC."""
    return f'"{word}"' if word == f"BOOTIF={BOOT_MAC}" else _quote(word)


def _quote(word: str) -> str:
    if not _WORD.fullmatch(word):
        raise Invalid(f"{word[:80]!r} cannot be told to GRUB: letters, digits and _.,:=/@+-[]() only.")
    return f"'{word}'"
