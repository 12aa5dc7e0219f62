"""The boot scripts that the server gives to iPXE. All that goes into a script is checked against an allow-list
first."""

import re

from rackwright.domain.errors import Invalid
from rackwright.domain.machines.install import LOCAL

IMAGE = "sledgehammer"
"""Kernel and initramfs of both discovery and installs."""
_HOST = re.compile(r"[0-9A-Za-z.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_BOOTENV = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_MACHINE = re.compile(r"[0-9A-Fa-f:-]{1,64}")
_ARGUMENTS = re.compile(r"[A-Za-z0-9_.,:=/@+-]+( [A-Za-z0-9_.,:=/@+-]+)*")

TRY_AGAIN = """\
:failed
echo Rackwright could not be reached, or has no image. Trying again in 10 s.
sleep 10
reboot
"""


def check_arguments(arguments: str) -> str:
    """Return kernel arguments that are safe in a script: words of letters, digits and `_ . , : = / @ + -`, with one
    space between them."""
    if arguments and not _ARGUMENTS.fullmatch(arguments):
        raise Invalid(f"{arguments[:80]!r} are no kernel arguments: letters, digits and _.,:=/@+- only.")
    return arguments


def boot_script(bootenv: str, machine: str, host: str, arguments: str = "") -> str:
    """Return the iPXE script for a machine: `machine` is the name it asked by, `host` the server that it asked."""
    if not _BOOTENV.fullmatch(bootenv) or not _MACHINE.fullmatch(machine):
        raise Invalid("This is no machine, or no boot environment.")
    if not _HOST.fullmatch(host):
        raise Invalid("The name this server was asked by is none that can be told to a machine.")
    head = f"#!ipxe\n# bootenv {bootenv}\n"
    if bootenv == LOCAL:
        return f"{head}exit\n"
    words = [
        f"rackwright.server=http://{host}",
        f"rackwright.bootenv={bootenv}",
        "BOOTIF=${netX/mac}",
        *check_arguments(arguments).split(),
    ]
    initrds = ["initrd=initrd"]
    secret = ""
    if bootenv.endswith("-install"):
        # An archive of its own, which the kernel unpacks beside the other: so the secret is on no command line.
        initrds.append("initrd=secret")
        secret = f"initrd --name secret http://{host}/boot/{machine}/secret.cpio || goto failed\n"
    return (
        f"{head}kernel --name kernel http://{host}/files/{IMAGE}/kernel {' '.join(initrds + words)} || goto failed\n"
        f"initrd --name initrd http://{host}/files/{IMAGE}/initrd || goto failed\n{secret}"
        f"boot || goto failed\n{TRY_AGAIN}"
    )
