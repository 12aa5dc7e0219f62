"""`file.directory` and `file.recurse`: folders, and everything below them."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ...module import Argument, Arguments, Check, Context, StateError, StateFunction
from ...support.content import decode, is_below, render, tree_path
from ...support.files import (
    Owner,
    make_folder,
    owner_changes,
    parse_mode,
    read_bytes,
    refuse_foreign_links,
    remove_all,
    set_owner,
    status,
)
from ...support.plan import Plan, carry_out
from . import common
from .links import _link

RECURSE = ("user", "group", "mode", "ignore_files", "ignore_dirs")


def check_directory(arguments: Arguments, context: Context) -> Check:
    path = common.path_of(arguments)
    if arguments["follow_symlinks"] and os.path.islink(path):
        refuse_foreign_links(path, last=True)
        path = os.path.realpath(path)
    owner = _folder_owner(arguments)
    plan = Plan()
    folder_status = status(path)
    if folder_status is not None and not stat.S_ISDIR(folder_status.st_mode):
        _plan_removal_of_file(plan, path, arguments)
        folder_status = None
    if folder_status is None:
        common.plan_parents(plan, path, arguments)
        plan.step(lambda: make_folder(path, owner))
        plan.changes[path] = {"directory": "new", **owner_changes(path, None, owner, context)}
        if not arguments["makedirs"] and not context.test and not os.path.isdir(os.path.dirname(path)):
            raise StateError(f"there is no folder {os.path.dirname(path)}; set makedirs: true or manage it")
    else:
        changes = owner_changes(path, folder_status, owner, context)
        if changes:
            plan.step(lambda: set_owner(path, owner), **{path: changes})
        if arguments.get("recurse"):
            _plan_recursion(plan, path, owner, arguments, context)
    return plan.check(f"Directory {path} is in the correct state", f"Directory {path} would be updated")


def _folder_owner(arguments: Arguments) -> Owner:
    mode = "dir_mode" if arguments.get("dir_mode") is not None else "mode"
    return common.owner_of(arguments, mode)


def _plan_removal_of_file(plan: Plan, path: str, arguments: Arguments) -> None:
    if arguments.get("backupname"):
        backup = os.path.join(os.path.dirname(path), str(arguments["backupname"]))
        plan.step(lambda: os.rename(path, backup), forced=f"{path} moved to {backup}")
    elif arguments["force"]:
        plan.step(lambda: remove_all(path), forced=f"{path} removed to make room for the folder")
    else:
        raise StateError(f"{path} exists and is no folder; set force: true to replace it or backupname to move it away")


def _plan_recursion(plan: Plan, path: str, owner: Owner, arguments: Arguments, context: Context) -> None:
    """Plan owner and mode of everything below a folder; what `recurse` does not name stays as it is."""
    recursed = set(arguments["recurse"])
    user = owner.user if "user" in recursed else None
    group = owner.group if "group" in recursed else None
    folder = Owner(user, group, owner.mode if "mode" in recursed else None)
    file = Owner(user, group, parse_mode(arguments.get("file_mode")) if "mode" in recursed else None)
    for path_below, is_folder in _walk(path, arguments.get("max_depth")):
        if ("ignore_dirs" if is_folder else "ignore_files") in recursed:
            continue
        owner_below = folder if is_folder else file
        changes = owner_changes(path_below, status(path_below), owner_below, context)
        if changes:
            plan.step(partial(set_owner, path_below, owner_below), **{path_below: changes})


def _walk(path: str, max_depth: Optional[int] = None) -> Iterator[Tuple[str, bool]]:
    """Return everything below `path` and whether it is a folder, sorted; links are not followed."""
    base = path.rstrip("/").count("/")
    for folder, folders, files in os.walk(path):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        yield from ((os.path.join(folder, name), False) for name in sorted(files + links))
        yield from ((os.path.join(folder, name), True) for name in folders if name not in links)
        if max_depth is not None and folder.count("/") - base >= max_depth:
            folders.clear()


def validate_directory(arguments: Arguments) -> List[str]:
    errors = common.path_rules(arguments)
    unknown = [str(name) for name in arguments.get("recurse") or [] if name not in RECURSE]
    if unknown:
        errors.append(f"recurse: no such thing as {', '.join(unknown)}; there are {', '.join(RECURSE)}")
    if arguments.get("mode") is not None and arguments.get("dir_mode") is not None:
        errors.append("mode and dir_mode mean the same here; give one")
    return errors


def check_recurse(arguments: Arguments, context: Context) -> Check:
    target = common.path_of(arguments)
    source = tree_path(str(arguments["source"]), context.root)
    if not os.path.isdir(source):
        raise StateError(f"there is no folder {arguments['source']!r} in the state tree ({source})")
    if is_below(target, source):
        raise StateError(f"{target} lies in its own source {source}; copy to a folder outside of it")
    if arguments["clean"] and is_below(source, target):
        raise StateError(f"clean would remove the source {source}, which lies in {target}; keep it elsewhere")
    plan = Plan()
    folder = common.owner_of(arguments, "dir_mode")
    common.plan_folders(plan, target, Owner(folder.user, folder.group, folder.mode))
    _plan_folder(plan, target, folder, context)
    kept_paths = {target}
    for path, is_folder in _walk(source, arguments.get("maxdepth")):
        relative = os.path.relpath(path, source)
        if not _is_included(relative, is_folder, arguments):
            continue
        destination = os.path.join(target, relative)
        if is_folder:
            if arguments["include_empty"]:
                _plan_folder(plan, destination, folder, context)
                kept_paths.add(destination)
            continue
        for parent in _folders_between(target, destination):
            if parent not in kept_paths:
                _plan_folder(plan, parent, folder, context)
                kept_paths.add(parent)
        kept_paths.add(destination)
        changes = _plan_entry(plan, path, destination, arguments, context)
        if changes:
            plan.changes[destination] = changes
    if arguments["clean"]:
        _plan_clean(plan, target, kept_paths, arguments)
    return plan.check(f"The directory {target} is in the correct state", f"The directory {target} would be updated")


def _folders_between(top: str, path: str) -> List[str]:
    folders: List[str] = []
    parent = os.path.dirname(path)
    while parent != top:
        folders.append(parent)
        parent = os.path.dirname(parent)
    return folders[::-1]


def _plan_folder(plan: Plan, path: str, owner: Owner, context: Context) -> None:
    refuse_foreign_links(path, last=True)
    folder_status = status(path, follow=True)
    if folder_status is None:
        plan.step(lambda: make_folder(path, owner))
        plan.changes[path] = {"directory": "new", **owner_changes(path, None, owner, context)}
        return
    if not stat.S_ISDIR(folder_status.st_mode):
        raise StateError(f"{path} exists and is no folder; remove it first (file.absent)")
    changes = owner_changes(path, folder_status, owner, context)
    if changes:
        plan.step(lambda: set_owner(path, owner), **{path: changes})


def _plan_entry(plan: Plan, source: str, destination: str, arguments: Arguments, context: Context) -> Dict[str, Any]:
    if arguments["keep_symlinks"] and os.path.islink(source):
        target = os.readlink(source)
        if os.path.islink(destination) and os.readlink(destination) == target:
            return {}
        if os.path.lexists(destination):
            if not os.path.islink(destination) and not arguments["force_symlinks"]:
                raise StateError(f"{destination} exists and is no link; set force_symlinks: true to replace it")
            plan.step(lambda: remove_all(destination))
        plan.step(lambda: _link(destination, target))
        return {"symlink": target}
    exists = status(destination) is not None
    content: Optional[bytes] = None
    if arguments["replace"] or not exists:
        content = read_bytes(source)
        if content is None:
            raise StateError(f"{source} is a broken link; set keep_symlinks: true to copy links as links")
        if arguments.get("template"):
            name = os.path.relpath(source, context.root)
            content = render(decode(content, name), name, arguments, context).encode()
    refuse_foreign_links(destination, last=True)
    destination = os.path.realpath(destination) if os.path.islink(destination) else destination
    return common.plan_file(
        plan, destination, content, common.owner_of(arguments, "file_mode", source), arguments, context
    )


def _plan_clean(plan: Plan, target: str, kept_paths: Set[str], arguments: Arguments) -> None:
    """Plan to remove what the source does not have. Paths that the patterns exclude stay, as in Salt."""
    excluded = arguments.get("exclude_pat")
    entries = list(_walk(target))
    needed = set(kept_paths)
    for path, _ in entries:
        if _matches(os.path.relpath(path, target), excluded):
            needed.add(path)
    for path in list(needed):
        needed.update(_folders_between(target, path) if path != target else ())
    removed: List[str] = []
    below_removed: Set[str] = set()
    for path, _ in entries:
        if path in needed:
            continue
        if os.path.dirname(path) not in below_removed:
            removed.append(path)
            plan.step(partial(remove_all, path))
        below_removed.add(path)
    if removed:
        plan.changes["removed"] = removed


def _is_included(relative: str, is_folder: bool, arguments: Arguments) -> bool:
    if _matches(relative, arguments.get("exclude_pat")):
        return False
    include = arguments.get("include_pat")
    return is_folder or not include or _matches(relative, include)


def _matches(relative: str, patterns: Any) -> bool:
    """Return whether a path below the source matches Salt's patterns: globs, or regular expressions after `E@`."""
    for pattern in [patterns] if isinstance(patterns, str) else (patterns or []):
        if pattern.startswith("E@"):
            if re.search(pattern[2:], relative):
                return True
        elif fnmatch.fnmatch(relative, pattern):
            return True
    return False


def validate_recurse(arguments: Arguments) -> List[str]:
    errors = common.path_rules(arguments)
    for name in ("include_pat", "exclude_pat"):
        patterns = arguments.get(name)
        for pattern in [patterns] if isinstance(patterns, str) else (patterns or []):
            if isinstance(pattern, str) and pattern.startswith("E@"):
                try:
                    re.compile(pattern[2:])
                except re.error as error:
                    errors.append(f"{name}: {error} in {pattern!r}")
    if arguments.get("include_pat") and arguments.get("clean"):
        errors.append("clean with include_pat would remove what was never looked at; use exclude_pat")
    return errors


FUNCTIONS = (
    StateFunction(
        "directory",
        "A folder with the given owner and mode; with `recurse`, everything below it too.",
        (
            Argument("name", help="absolute path of the folder", required=True),
            common.USER,
            common.GROUP,
            Argument("mode", "mode", help="mode of the folder, as octal digits in quotes"),
            Argument("dir_mode", "mode", help="the same as mode"),
            Argument("file_mode", "mode", help="mode of files below it, with recurse: [mode]"),
            Argument(
                "recurse", "list", help="what to set below it: user, group, mode; ignore_files, ignore_dirs narrow it"
            ),
            Argument("max_depth", "int", help="how deep recurse goes; 0 is the folder's own entries"),
            common.MAKEDIRS,
            Argument("follow_symlinks", "bool", help="a link to a folder counts as the folder", default=False),
            Argument("force", "bool", help="replace a file that is in the way", default=False),
            Argument("backupname", help="move what is in the way to this name in the same folder"),
        ),
        check_directory,
        carry_out,
        validate=validate_directory,
        resources=common.path_resource,
    ),
    StateFunction(
        "recurse",
        "A folder of the state tree, copied with all below it.",
        (
            Argument("name", help="absolute path of the folder to fill", required=True),
            Argument("source", help="folder in the state tree (salt:// or plain)", required=True),
            common.USER,
            common.GROUP,
            common.DIR_MODE,
            Argument("file_mode", "mode", help="mode of the files"),
            common.TEMPLATE,
            common.CONTEXT,
            common.DEFAULTS,
            Argument("include_pat", "any", help="only files whose path matches: globs, or `E@regex`"),
            Argument("exclude_pat", "any", help="not what matches; clean leaves it alone too"),
            Argument("maxdepth", "int", help="how deep to copy"),
            Argument("include_empty", "bool", help="make folders that hold nothing too", default=False),
            Argument("clean", "bool", help="remove what the source does not have", default=False),
            Argument("keep_symlinks", "bool", help="copy links as links, not what they point to", default=False),
            Argument("force_symlinks", "bool", help="let a link replace a file or folder", default=False),
            Argument("replace", "bool", help="false leaves files that exist", default=True),
            common.BACKUP,
            common.SHOW_CHANGES,
        ),
        check_recurse,
        carry_out,
        validate=validate_recurse,
        resources=common.path_resource,
    ),
)
