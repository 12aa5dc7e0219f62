"""The service manager for System V init scripts: `service`, and `update-rc.d` or `chkconfig` for the start at boot."""

from __future__ import annotations

import glob
import os

from ...module import StateError
from ..process import attempt, last_words, which
from .base import Manager, Status


class SysV(Manager):
    """Services with init scripts. `sig` is text in a process's command line, for scripts with a wrong `status`."""

    name = "sysv"

    def __init__(self, sig: str = "") -> None:
        self.sig = sig

    def status(self, service: str) -> Status:
        if not os.path.exists(f"/etc/init.d/{service}"):
            return Status(exists=False)
        running = any_process_has(self.sig) if self.sig else attempt(["service", service, "status"])[0] == 0
        enabled = bool(glob.glob(f"/etc/rc[2345].d/S[0-9][0-9]{glob.escape(service)}"))
        return Status(True, running, enabled)

    def start(self, service: str) -> None:
        self._service(service, "start")

    def stop(self, service: str) -> None:
        self._service(service, "stop")

    def restart(self, service: str) -> None:
        self._service(service, "restart")

    def reload(self, service: str) -> None:
        self._service(service, "reload")

    def enable(self, service: str, enabled: bool) -> None:
        if which("update-rc.d"):
            # "defaults" makes the links where there are none yet; "enable" turns on those that were disabled.
            verbs = ["defaults", "enable"] if enabled else ["defaults", "disable"]
            commands = [["update-rc.d", service, verb] for verb in verbs]
        else:
            commands = [["chkconfig", service, "on" if enabled else "off"]]
        for command in commands:
            code, stdout, stderr = attempt(command)
            if code != 0:
                raise StateError(f"{' '.join(command)} ended with status {code}: {last_words(stderr or stdout)}")

    def _service(self, service: str, verb: str) -> None:
        code, stdout, stderr = attempt(["service", service, verb])
        if code != 0:
            raise StateError(f"service {service} {verb} ended with status {code}: {last_words(stderr or stdout)}")


def any_process_has(text: str) -> bool:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        if path != f"/proc/{os.getpid()}/cmdline":
            try:
                with open(path, "rb") as file:
                    line = file.read().replace(b"\0", b" ")
            except OSError:
                continue  # it ended while we looked
            if text.encode() in line:
                return True
    return False
