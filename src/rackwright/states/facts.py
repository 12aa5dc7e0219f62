"""Facts of the machine the engine runs on, read locally: the `grains` of templates and top files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict

_FAMILIES = {
    "debian": "Debian",
    "ubuntu": "Debian",
    "fedora": "RedHat",
    "rhel": "RedHat",
    "centos": "RedHat",
    "suse": "Suse",
    "alpine": "Alpine",
    "arch": "Arch",
}


def collect_facts(name: str = "") -> Dict[str, Any]:
    """Return the facts of this machine. `name` is the node's name, where it differs from the host name."""
    uname = os.uname()
    release = _os_release()
    distributions = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    family = next(
        (_FAMILIES[distribution] for distribution in distributions if distribution in _FAMILIES),
        release.get("NAME", ""),
    )
    host = uname.nodename
    return {
        "id": name or host,
        "host": host.partition(".")[0],
        "kernel": uname.sysname,
        "kernelrelease": uname.release,
        "cpuarch": uname.machine,
        "num_cpus": os.cpu_count() or 1,
        "os": release.get("NAME", "").partition(" ")[0],
        "os_family": family,
        "osrelease": release.get("VERSION_ID", ""),
        "oscodename": release.get("VERSION_CODENAME", ""),
    }


def _os_release() -> Dict[str, str]:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, _, value in pairs}
