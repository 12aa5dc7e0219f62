"""Shared by the functions of `file`: arguments, rules for paths, planning one file's content, owner and backup."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any, Dict, List, Optional

from ...module import Argument, Arguments, Context, Resource, StateError
from ...support.files import (
    Owner,
    make_folder,
    missing_parents,
    owner_changes,
    parse_mode,
    read_bytes,
    set_owner,
    show_mode,
    status,
    unified_diff,
    write_whole,
)
from ...support.plan import Plan

BACKUPS = "/var/backups/rackwright"
HIDDEN = "<show_changes=False>"

NAME = Argument("name", help="absolute path of the file", required=True)
USER = Argument("user", help="owner, a name or a number; left as it is if not given")
GROUP = Argument("group", help="group, a name or a number; left as it is if not given")
MODE = Argument(
    "mode", "mode", help="octal digits in quotes, '0644', or `keep` for that of the source; left as it is if not given"
)
MAKEDIRS = Argument("makedirs", "bool", help="make the folders above it if they are missing", default=False)
DIR_MODE = Argument("dir_mode", "mode", help="mode of folders that are made")
TEMPLATE = Argument("template", help="render the content with this template language first", choices=("jinja",))
CONTEXT = Argument("context", "dict", help="more variables for the template, winning over all others")
DEFAULTS = Argument("defaults", "dict", help="variables for the template that `context` wins over")
BACKUP = Argument(
    "backup",
    "any",
    help=f"keep the old file: `minion` (or true) under {BACKUPS}, a suffix like .bak beside it",
)
SHOW_CHANGES = Argument(
    "show_changes", "bool", help="false keeps the diff out of every output, for files with secrets", default=True
)


def path_rules(arguments: Arguments) -> List[str]:
    name = str(arguments["name"])
    if not name.startswith("/"):
        return [f"name: {name!r} is no absolute path; begin it with /"]
    if "\0" in name:
        return ["name: a path cannot hold a NUL byte"]
    if os.path.normpath(name) == "/":
        return ["name: the root of the file system is not for a state to manage"]
    return []


def path_resource(arguments: Arguments) -> List[Resource]:
    return [Resource("file", os.path.normpath(str(arguments["name"])))]


def path_of(arguments: Arguments) -> str:
    return os.path.normpath(str(arguments["name"]))


def text_or_none(value: Any) -> Optional[str]:
    """Return a user or group as text: YAML may give it as a number."""
    return None if value is None else str(value)


def owner_of(arguments: Arguments, mode: str = "mode", source: str = "") -> Owner:
    """Return the owner that the arguments name; a mode of `keep` is that of the `source` file."""
    desired_mode = arguments.get(mode)
    if desired_mode == "keep":
        source_status = status(source, follow=True) if source else None
        desired_mode = None if source_status is None else show_mode(source_status.st_mode & 0o7777)
    return Owner(text_or_none(arguments.get("user")), text_or_none(arguments.get("group")), parse_mode(desired_mode))


def plan_parents(plan: Plan, path: str, arguments: Arguments) -> None:
    """Plan missing folders if `makedirs` is set. Without it a real run fails and says so."""
    if arguments.get("makedirs"):
        plan_folders(plan, path, folder_owner(arguments))


def folder_owner(arguments: Arguments) -> Owner:
    owner = owner_of(arguments)
    mode = parse_mode(arguments.get("dir_mode"))
    if mode is None and owner.mode is not None:
        mode = searchable(owner.mode)
    return Owner(owner.user, owner.group, mode)


def searchable(mode: int) -> int:
    """Return the mode of a folder for files of this mode: users who may read may enter, 0640 becomes 0750."""
    return mode | (mode & 0o444) >> 2


def plan_folders(plan: Plan, path: str, owner: Owner) -> None:
    for folder in missing_parents(path):
        plan.step(partial(make_folder, folder, owner))


def plan_file(
    plan: Plan, path: str, content: Optional[bytes], owner: Owner, arguments: Arguments, context: Context
) -> Dict[str, Any]:
    """Plan that `path` has `content` (None: unchanged) and `owner`, and return the changes of this file."""
    file_status = status(path)
    current = read_bytes(path) if content is not None else None
    changes: Dict[str, Any] = {}
    if content is not None and current != content:
        hidden = not arguments.get("show_changes", True)
        changes["diff"] = HIDDEN if hidden else unified_diff(current, content, path)
    changes.update(owner_changes(path, file_status, owner, context))
    if "diff" in changes and content is not None:
        if current is not None:
            plan_backup(plan, path, arguments)
        plan.step(lambda: write_whole(path, content, owner))
    elif changes:
        plan.step(lambda: set_owner(path, owner))
    return changes


def plan_backup(plan: Plan, path: str, arguments: Arguments) -> None:
    backup = arguments.get("backup")
    if not backup:
        return
    copy = backup_path(path, backup)
    plan.outputs["backup"] = copy

    def write_backup() -> None:
        file_status = status(path)
        content = read_bytes(path)
        if content is None or file_status is None:
            return
        for folder in missing_parents(copy):
            make_folder(folder, Owner(mode=0o700))
        write_whole(
            copy, content, Owner(str(file_status.st_uid), str(file_status.st_gid), file_status.st_mode & 0o7777)
        )

    plan.step(write_backup)


def backup_path(path: str, backup: Any) -> str:
    if backup is True or backup == "minion":
        return f"{BACKUPS}{path}.{time.strftime('%Y%m%dT%H%M%S')}"
    if isinstance(backup, str) and backup.startswith(".") and "/" not in backup:
        return path + backup
    raise StateError(f"backup: {backup!r} is neither `minion` nor a suffix that begins with a dot")
