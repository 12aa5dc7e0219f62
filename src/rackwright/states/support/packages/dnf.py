"""The package backend for dnf and rpm."""

from __future__ import annotations

import functools
import os
from typing import Dict, List, Sequence, Set

from ..process import follow, run
from .base import Available, Backend, Inventory, Log, Options, Target
from .versions import compare_rpm

FIELDS = "%{NAME}\\t%{ARCH}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\n"
PROVIDES = "[%{PROVIDENAME}\\n]"
AVAILABLE = "%{name}\\t%{epoch}\\t%{version}-%{release}"


class Dnf(Backend):
    """Fedora, RHEL and their derivatives. Versions are as rpm has them: VERSION-RELEASE, after EPOCH: unless 0."""

    name = "dnf"

    def inventory(self) -> Inventory:
        base = ["rpm", *([f"--root={self.root}"] if self.root else []), "-qa", "--qf"]
        versions: Dict[str, str] = {}
        architectures: Set[str] = set()
        for line in run([*base, FIELDS], "reading the package database").splitlines():
            name, architecture, epoch, version = line.split("\t")
            full_version = _with_epoch(epoch, version)
            # Several versions of one name (kernels): the newest counts.
            if name not in versions or compare_rpm(full_version, versions[name]) > 0:
                versions[name] = full_version
            architectures.add(f".{architecture}")
        names = run([*base, PROVIDES], "reading the package database").splitlines()
        virtual = frozenset(set(names) - versions.keys())
        return Inventory(versions, virtual, held=frozenset(self._held()), native=tuple(sorted(architectures)))

    def _held(self) -> Set[str]:
        """Return the held packages: the versionlock plugin's list has lines of `NAME-EPOCH:VERSION-RELEASE.*`."""
        path = f"{self.root}/etc/dnf/plugins/versionlock.list"
        if not os.path.exists(path):
            return set()
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip() and not line.startswith(("#", "!"))]
        return {line.rsplit("-", 2)[0] for line in lines if line.count("-") >= 2}

    def available(self, names: Sequence[str]) -> Dict[str, Available]:
        command = self._command("repoquery", ["--quiet", "--available", "--qf", AVAILABLE, "--", *names])
        versions_by_name: Dict[str, List[str]] = {}
        for line in run(command, "reading the package lists").splitlines():
            parts = line.split("\t")
            if len(parts) == 3:
                versions_by_name.setdefault(parts[0], []).append(_with_epoch(parts[1], parts[2]))
        newest_first = {
            name: tuple(sorted(set(versions), key=functools.cmp_to_key(compare_rpm), reverse=True))
            for name, versions in versions_by_name.items()
        }
        return {name: Available(versions[0], versions) for name, versions in newest_first.items()}

    def refresh(self, log: Log, source: str = "") -> None:
        # Without this, dnf silently skips a repository that cannot be read.
        strict = ["--setopt=*.skip_if_unavailable=0", *([f"--repo={source}"] if source else [])]
        follow(self._command("makecache", ["--refresh", *strict]), "refreshing the package lists", log)

    def install(self, targets: Sequence[Target], options: Options, log: Log) -> None:
        extra = [f"--repo={options.fromrepo}"] if options.fromrepo else []
        extra += ["--nogpgcheck"] if options.skip_verify else []
        extra += ["--disableplugin=versionlock"] if options.change_held else []
        if options.install_recommends is not None:
            extra.append(f"--setopt=install_weak_deps={options.install_recommends}")
        named = [target.name + (f"-{target.version}" if target.version else "") for target in targets]
        # With --best, `install` also takes an installed package to the newest; a named version may be an older one.
        follow(self._command("install", ["--best", *extra, "--", *named]), f"installing {', '.join(named)}", log)

    def remove(self, names: Sequence[str], purge: bool, log: Log) -> None:
        follow(self._command("remove", ["--", *names]), f"removing {', '.join(names)}", log)

    def hold(self, names: Sequence[str], held: bool) -> None:
        run(self._command("versionlock", ["add" if held else "delete", *names]), "holding packages (dnf versionlock)")

    def compare(self, one: str, other: str) -> int:
        return compare_rpm(one, other)

    def _command(self, verb: str, arguments: Sequence[str]) -> List[str]:
        root: List[str] = []
        if self.root:
            own_config = f"{self.root}/etc/dnf/dnf.conf"
            config = [f"--config={own_config}"] if os.path.exists(own_config) else []
            root = [f"--installroot={self.root}", *config]
        return ["dnf", "-y", *root, verb, *arguments]


def _with_epoch(epoch: str, version: str) -> str:
    return version if epoch in ("0", "(none)", "") else f"{epoch}:{version}"
