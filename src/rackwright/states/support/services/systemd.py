"""The service manager systemd, through `systemctl`."""

from __future__ import annotations

from typing import Dict, List

from ..process import attempt, run
from .base import Manager, Status

PROPERTIES = "LoadState,ActiveState,UnitFileState,CanReload,NeedDaemonReload"
ENABLED = {"enabled": True, "enabled-runtime": True, "linked": True, "disabled": False, "masked": False}


class Systemd(Manager):
    """Services of systemd. With a root, units are enabled in a system that is not running (an image)."""

    name = "systemd"

    def __init__(self, root: str = "") -> None:
        self.root = root

    def status(self, service: str) -> Status:
        if self.root:
            return self._offline_status(service)
        text = self._systemctl(["show", f"--property={PROPERTIES}", "--", _unit(service)], f"asking for {service}")
        properties = parse_properties(text)
        if properties.get("NeedDaemonReload") == "yes":
            # A unit file changed since systemd read it: systemd would start the old version.
            self._systemctl(["daemon-reload"], "reading the unit files again")
        return read_status(properties)

    def _offline_status(self, service: str) -> Status:
        _, stdout, _ = attempt(["systemctl", f"--root={self.root}", "is-enabled", "--", _unit(service)])
        state = stdout.strip()
        return Status(exists=state not in ("", "not-found"), enabled=ENABLED.get(state), masked=state == "masked")

    def start(self, service: str) -> None:
        self._systemctl(["start", "--", _unit(service)], f"starting {service}")

    def stop(self, service: str) -> None:
        self._systemctl(["stop", "--", _unit(service)], f"stopping {service}")

    def restart(self, service: str) -> None:
        self._systemctl(["restart", "--", _unit(service)], f"restarting {service}")

    def reload(self, service: str) -> None:
        self._systemctl(["reload", "--", _unit(service)], f"reloading {service}")

    def enable(self, service: str, enabled: bool) -> None:
        verb = "enable" if enabled else "disable"
        self._systemctl([verb, "--", _unit(service)], f"{verb} {service}")

    def unmask(self, service: str) -> None:
        self._systemctl(["unmask", "--", _unit(service)], f"unmasking {service}")

    def _systemctl(self, arguments: List[str], what: str) -> str:
        root = [f"--root={self.root}"] if self.root else []
        return run(["systemctl", "--no-ask-password", *root, *arguments], what)


def _unit(service: str) -> str:
    kinds = (".service", ".socket", ".timer", ".target", ".path", ".mount")
    return service if service.endswith(kinds) else f"{service}.service"


def parse_properties(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, _, value in pairs if key}


def read_status(properties: Dict[str, str]) -> Status:
    active = properties.get("ActiveState", "")
    return Status(
        exists=properties.get("LoadState") not in ("not-found", None, ""),
        running=active in ("active", "reloading"),
        enabled=ENABLED.get(properties.get("UnitFileState", "")),
        masked=properties.get("LoadState") == "masked",
        can_reload=properties.get("CanReload") == "yes",
        busy=active in ("activating", "deactivating"),
    )
