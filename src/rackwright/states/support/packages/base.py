"""The base class of package backends, and the view of the package database that all `pkg` states of a run share."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from ...module import Context, StateError

Log = Callable[[str], None]


@dataclass(frozen=True)
class Inventory:
    """The content of the package database, read in one go."""

    versions: Dict[str, str]
    provided: FrozenSet[str] = frozenset()
    """Virtual names that installed packages provide."""
    residual: FrozenSet[str] = frozenset()
    """Packages that are removed, but whose configuration files are still there (apt)."""
    held: FrozenSet[str] = frozenset()
    native: Tuple[str, ...] = ()
    """Endings of names that add nothing to the bare name: ":amd64" and ":all", ".x86_64" and ".noarch"."""

    def version(self, name: str) -> Optional[str]:
        return self.versions.get(self.plain(name))

    def plain(self, name: str) -> str:
        """Return the name under which the database has a package."""
        ending = next((ending for ending in self.native if name.endswith(ending)), "")
        return name[: -len(ending)] if ending else name


@dataclass(frozen=True)
class Available:
    """The versions of one package in the repositories, newest first, and the one that would be installed."""

    candidate: str
    versions: Tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """One package to install, at an exact version or (None) at the candidate."""

    name: str
    version: Optional[str] = None


@dataclass(frozen=True)
class Options:
    """The options of a transaction; states with equal options can share one."""

    fromrepo: str = ""
    skip_verify: bool = False
    install_recommends: Optional[bool] = None
    downgrade: bool = False
    change_held: bool = False


class Backend:
    """The operations of a package manager. Each method runs one or two processes; nothing is cached here."""

    name = ""

    def __init__(self, root: str = "") -> None:
        self.root = root

    def inventory(self) -> Inventory:
        raise NotImplementedError

    def available(self, names: Sequence[str]) -> Dict[str, Available]:
        raise NotImplementedError

    def refresh(self, log: Log, source: str = "") -> None:
        """Read the repositories' lists again; of one source file only, if it is named."""
        raise NotImplementedError

    def install(self, targets: Sequence[Target], options: Options, log: Log) -> None:
        raise NotImplementedError

    def remove(self, names: Sequence[str], purge: bool, log: Log) -> None:
        raise NotImplementedError

    def hold(self, names: Sequence[str], held: bool) -> None:
        raise StateError(f"{self.name} cannot hold packages back")

    def compare(self, one: str, other: str) -> int:
        raise NotImplementedError


@dataclass
class Packages:
    """A backend with a cache for one run. One transaction at a time; the database is read again only after one."""

    backend: Backend
    lock: Any = field(default_factory=threading.RLock)
    transactions: List[Tuple[str, ...]] = field(default_factory=list)
    """The package names of each transaction of this run."""
    reads: int = 0
    refreshed: bool = False
    _inventory: Optional[Inventory] = None
    _available: Dict[str, Optional[Available]] = field(default_factory=dict)

    def inventory(self) -> Inventory:
        with self.lock:
            if self._inventory is None:
                self._inventory = self.backend.inventory()
                self.reads += 1
            return self._inventory

    def available(self, names: Sequence[str]) -> Dict[str, Available]:
        """Return those of the packages that the repositories have; one look-up for all that are not known yet."""
        with self.lock:
            unknown = [name for name in names if name not in self._available]
            if unknown:
                looked_up = self.backend.available(unknown)
                self._available.update({name: looked_up.get(name) for name in unknown})
            known = {name: self._available[name] for name in names}
            return {name: available for name, available in known.items() if available is not None}

    def refresh(self, log: Log, source: str = "") -> None:
        with self.lock:
            try:
                self.backend.refresh(log, source)
                self.refreshed = self.refreshed or not source
            finally:
                # Also after a failure: of several repositories, those that could be read have been.
                self._available.clear()

    def refresh_once(self, log: Log) -> None:
        """Read the lists again, at most once a run, before the first transaction that needs them."""
        with self.lock:
            if not self.refreshed:
                self.refreshed = True
                self.refresh(log)

    def install(self, targets: Sequence[Target], options: Options, log: Log) -> None:
        with self.lock:
            self.transactions.append(tuple(target.name for target in targets))
            try:
                self.backend.install(targets, options, log)
            finally:
                self._inventory = None

    def remove(self, names: Sequence[str], purge: bool, log: Log) -> None:
        with self.lock:
            self.transactions.append(tuple(names))
            try:
                self.backend.remove(names, purge, log)
            finally:
                self._inventory = None

    def hold(self, names: Sequence[str], held: bool) -> None:
        with self.lock:
            self.backend.hold(names, held)
            self._inventory = None


def packages(provider: str, root: str, context: Context) -> Packages:
    """Return the run's view of the packages below `root`, by the named backend or the one this machine has."""
    with context.lock:
        root = root.rstrip("/")
        detected = f"packages:{root}"
        if not provider and detected not in context.once:
            context.once[detected] = detect(root)
        # The key has the backend in use: named or detected, it is the same package database with the same lists.
        backend_name = provider or context.once[detected]
        key = f"packages:{backend_name}:{root}"
        if key not in context.once:
            context.once[key] = Packages(backend_for(backend_name, root))
        view: Packages = context.once[key]
        return view


def backend_for(provider: str, root: str) -> Backend:
    from .apt import Apt
    from .dnf import Dnf
    from .packagekit import PackageKit

    if root and not os.path.isdir(root):
        raise StateError(f"root: there is no folder {root}")
    backends = {backend.name: backend for backend in (Apt, Dnf, PackageKit)}
    return backends[provider or detect(root)](root)


def detect(root: str = "") -> str:
    """Return the package manager of a machine (or of an image below `root`): the one whose database is there."""
    from ..process import which

    if os.path.exists(f"{root}/var/lib/dpkg/status") and which("apt-get"):
        return "apt"
    if which("dnf"):
        return "dnf"
    if which("apt-get"):
        return "apt"
    raise StateError("there is neither apt nor dnf on this machine, so packages cannot be managed")
