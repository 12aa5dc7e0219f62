"""The package backend for PackageKit, through `pkcon`: for machines whose packages are changed by its daemon.

It is used only if a state names it.

Installed and available packages are read from apt or rpm below it: pkcon writes package ids as
NAME-VERSION.ARCH, which cannot be taken apart again for certain.
"""

from __future__ import annotations

from typing import Dict, Sequence

from ...module import StateError
from ..process import follow
from .base import Available, Backend, Inventory, Log, Options, Target, backend_for, detect


class PackageKit(Backend):
    """Changes packages through the daemon on the system bus: one transaction for new packages, one for updates."""

    name = "packagekit"

    def __init__(self, root: str = "") -> None:
        if root:
            raise StateError("PackageKit manages the running machine only; leave root out or choose another provider")
        super().__init__(root)
        self.native = backend_for(detect(), "")

    def inventory(self) -> Inventory:
        return self.native.inventory()

    def available(self, names: Sequence[str]) -> Dict[str, Available]:
        return self.native.available(names)

    def refresh(self, log: Log, source: str = "") -> None:
        self._pkcon(["refresh", "force"], "refreshing the package lists", log)

    def install(self, targets: Sequence[Target], options: Options, log: Log) -> None:
        if options.fromrepo or options.downgrade or options.change_held or any(target.version for target in targets):
            raise StateError(
                "PackageKit can choose neither version nor repository and cannot change held packages; "
                "use the provider apt or dnf for this state"
            )
        installed = self.inventory().versions
        trust = ["--allow-untrusted"] if options.skip_verify else []
        for verb, is_installed in (("install", False), ("update", True)):
            names = [target.name for target in targets if (target.name in installed) is is_installed]
            if names:
                self._pkcon([*trust, verb, *names], f"{verb} of {', '.join(names)}", log)

    def remove(self, names: Sequence[str], purge: bool, log: Log) -> None:
        if purge:
            raise StateError("PackageKit cannot purge configuration files; use pkg.removed, or the provider apt")
        self._pkcon(["remove", *names], f"removal of {', '.join(names)}", log)

    def compare(self, one: str, other: str) -> int:
        return self.native.compare(one, other)

    def _pkcon(self, arguments: Sequence[str], what: str, log: Log) -> None:
        follow(["pkcon", "--plain", "--noninteractive", *arguments], what, log)
