"""The base class of service managers, and the choice of the one that a machine has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ...module import StateError


@dataclass(frozen=True)
class Status:
    """The status of a service, read in one go."""

    exists: bool
    running: bool = False
    enabled: Optional[bool] = None
    """None if it can be neither enabled nor disabled (a static unit, a plain process)."""
    masked: bool = False
    can_reload: bool = True
    busy: bool = False
    """Starting or stopping: the status has to be read again."""


class Manager:
    """The operations on a service. A request returns when the manager has accepted it; `status` tells the result."""

    name = ""

    def status(self, service: str) -> Status:
        raise NotImplementedError

    def start(self, service: str) -> None:
        raise NotImplementedError

    def stop(self, service: str) -> None:
        raise NotImplementedError

    def reload(self, service: str) -> None:
        raise NotImplementedError

    def restart(self, service: str) -> None:
        self.stop(service)
        self.start(service)

    def enable(self, service: str, enabled: bool) -> None:
        raise StateError(f"{service}: {self.name} services start with their state only and cannot be enabled")

    def unmask(self, service: str) -> None:
        raise StateError(f"{service}: only systemd masks services")


def manager_for(arguments: Dict[str, Any]) -> Manager:
    """Return the manager that a state names, or that of this machine; `command` or `pidfile` mean a plain process."""
    from .process import Process
    from .systemd import Systemd
    from .sysv import SysV

    provider = arguments.get("provider") or detect(arguments)
    if provider == "process":
        return Process(arguments)
    if provider == "systemd":
        return Systemd(str(arguments.get("root") or ""))
    return SysV(str(arguments.get("sig") or ""))


def detect(arguments: Dict[str, Any]) -> str:
    from ..process import which

    if arguments.get("command") or arguments.get("pidfile"):
        return "process"
    if os.path.isdir("/run/systemd/system") or arguments.get("root"):
        return "systemd"
    if which("service"):
        return "sysv"
    raise StateError(
        "neither systemd nor System V scripts run services on this machine; give command: to run it as a plain process"
    )
