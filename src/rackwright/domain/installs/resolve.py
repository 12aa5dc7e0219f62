"""Resolving an install: each part works out what it comes to on this machine, or why it cannot be done."""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.cloud_init.part import check_cloud_init
from rackwright.domain.installs.disks import Disk
from rackwright.domain.installs.node_network.part import configure_network
from rackwright.domain.installs.request import InstallPart, InstallRequest, Problem, RootFile
from rackwright.domain.installs.storage.part import lay_out_disks
from rackwright.domain.installs.wipes import wipe_entries

PARTS: tuple[Callable[[InstallRequest], InstallPart], ...] = (lay_out_disks, configure_network, check_cloud_init)
"""The parts of an install, in the order in which their problems are told. Each has keys of the config of its own."""


@dataclass(frozen=True)
class ResolvedInstall:
    """What an install would do to its machine."""

    config: JsonObject
    """What the installer is told, its files among it."""
    problems: tuple[Problem, ...]
    """Why it cannot be done; empty: it can."""
    wiped: tuple[Disk, ...]
    """The disks that are written to, as discovery found them."""
    notes: tuple[Problem, ...] = ()
    """What works, but should be said otherwise."""


def resolve_install(request: InstallRequest) -> ResolvedInstall:
    """Return what an install comes to on its machine."""
    config: JsonObject = {}
    files: list[Json] = []
    problems: list[Problem] = []
    wiped: dict[str, Disk] = {}
    notes: list[Problem] = []
    for resolve_part in PARTS:
        part = resolve_part(request)
        config |= part.config
        files += [_file_entry(file) for file in part.files]
        problems += part.problems
        wiped |= {disk.name: disk for disk in part.wiped}
        notes += part.notes
    arguments = request.setting("kernel_arguments")
    if isinstance(arguments, str) and arguments:
        config["kernel_arguments"] = arguments
    if wiped:
        config["wipes"] = wipe_entries(wiped.values())
    return ResolvedInstall({**config, "files": files}, tuple(problems), tuple(wiped.values()), tuple(notes))


def _file_entry(file: RootFile) -> JsonObject:
    """Return a file as the installer reads it: its content is one word, whatever it holds."""
    content = base64.b64encode(file.content.encode()).decode()
    return {"path": file.path, "mode": f"{file.mode:04o}", "base64": content}
