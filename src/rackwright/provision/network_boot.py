"""What a machine boots over the network: one model, and for each boot loader a renderer of its script (`ipxe.py`,
`grub.py`).

Each renderer checks all that it puts into its script against an allow-list of its own, because each language has other
characters that mean something.
"""

import re
from dataclasses import dataclass

from rackwright.domain.architectures import Architecture
from rackwright.domain.errors import Invalid
from rackwright.domain.machines.install import LOCAL

BOOTENV = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
MACHINE = re.compile(r"[0-9A-Fa-f:-]{1,64}")
HOST = re.compile(r"[0-9A-Za-z.-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_ARGUMENTS = re.compile(r"[A-Za-z0-9_.,:=/@+-]+( [A-Za-z0-9_.,:=/@+-]+)*")


@dataclass(frozen=True)
class NetworkBoot:
    """What a machine that asks now should boot."""

    bootenv: str
    machine: str
    """The MAC or UUID that it asked by."""
    host: str
    """The server that it asked, as it reaches it: a name or an address, and a port."""
    arguments: tuple[str, ...] = ()
    """More arguments for the kernel."""
    disk_mark: str = ""
    """The name of the file that marks the disk which its system was installed on; empty: not known."""
    architecture: Architecture = Architecture.AMD64
    """The kind of machine, as its boot loader says."""

    @property
    def is_local(self) -> bool:
        """Whether it boots the system on its own disk."""
        return self.bootenv == LOCAL

    @property
    def kernel(self) -> str:
        """The path of the kernel on the server: one image has that of both discovery and installs."""
        return f"/files/{self.architecture.sledgehammer}/kernel"

    @property
    def initrds(self) -> dict[str, str]:
        """The paths of the archives that the kernel unpacks, by the name of each.

        The secret of an install is an archive of its own: so it is on no command line.
        """
        initrds = {"initrd": f"/files/{self.architecture.sledgehammer}/initrd"}
        if self.bootenv.endswith("-install"):
            initrds["secret"] = f"/boot/{self.machine}/secret.cpio"
        return initrds

    def kernel_arguments(self, boot_mac: str) -> list[str]:
        """Return the kernel's arguments; `boot_mac` is the loader's own word for the MAC that it boots by.

        What the machine's own system gets, if nobody chose, is all behind that MAC.
        """
        told = [f"rackwright.server=http://{self.host}", f"rackwright.bootenv={self.bootenv}"]
        return [*told, f"BOOTIF={boot_mac}", *self.arguments]


def plan_network_boot(
    bootenv: str,
    machine: str,
    host: str,
    arguments: str = "",
    disk_mark: str = "",
    architecture: Architecture = Architecture.AMD64,
) -> NetworkBoot:
    """Return what a machine boots. `arguments` are words with one space between them."""
    return NetworkBoot(bootenv, machine, host, tuple(check_arguments(arguments).split()), disk_mark, architecture)


def check_arguments(arguments: str) -> str:
    """Return kernel arguments that are safe in a script: words of letters, digits and `_ . , : = / @ + -`, with one
    space between them."""
    if arguments and not _ARGUMENTS.fullmatch(arguments):
        raise Invalid(f"{arguments[:80]!r} are no kernel arguments: letters, digits and _.,:=/@+- only.")
    return arguments


def check_names(boot: NetworkBoot) -> None:
    """Raise Invalid unless the names in a boot are what such names can be."""
    if not BOOTENV.fullmatch(boot.bootenv) or not MACHINE.fullmatch(boot.machine):
        raise Invalid("This is no machine, or no boot environment.")
    if not HOST.fullmatch(boot.host):
        raise Invalid("The name this server was asked by is none that can be told to a machine.")
