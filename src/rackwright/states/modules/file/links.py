"""`file.absent` and `file.symlink`."""

from __future__ import annotations

import os
import stat
from typing import List

from ...module import Argument, Arguments, Check, Context, StateError, StateFunction
from ...support.files import owner_changes, refuse_foreign_links, remove_all, set_owner, status
from ...support.plan import Plan, carry_out
from . import common


def check_absent(arguments: Arguments, context: Context) -> Check:
    path = common.path_of(arguments)
    plan = Plan()
    if status(path) is not None:
        plan.step(lambda: remove_all(path), removed=path)
    return plan.check(f"{path} does not exist", f"{path} would be removed")


def check_symlink(arguments: Arguments, context: Context) -> Check:
    path, target = common.path_of(arguments), str(arguments["target"])
    owner = common.owner_of(arguments, mode="no mode: links have none")
    link_status = status(path)
    plan = Plan()
    if link_status is None:
        common.plan_parents(plan, path, arguments)
        plan.step(lambda: _link(path, target), new=path)
    elif stat.S_ISLNK(link_status.st_mode):
        if os.readlink(path) != target:
            plan.step(lambda: _link(path, target), change=f"{os.readlink(path)} -> {target}")
    elif arguments.get("backupname"):
        aside = os.path.join(os.path.dirname(path), str(arguments["backupname"]))
        plan.step(lambda: os.rename(path, aside), forced=f"{path} moved to {aside}")
        plan.step(lambda: _link(path, target), new=path)
    elif arguments["force"]:
        plan.step(lambda: remove_all(path), forced=f"{path} removed to make room for the link")
        plan.step(lambda: _link(path, target), new=path)
    else:
        raise StateError(f"{path} exists and is no link; set force: true to replace it or backupname to move it away")
    changes = owner_changes(
        path, link_status if link_status is not None and stat.S_ISLNK(link_status.st_mode) else None, owner, context
    )
    if changes:
        plan.step(lambda: set_owner(path, owner), **changes)
    return plan.check(f"Symlink {path} -> {target} is there", f"Symlink {path} -> {target} would be set")


def _link(path: str, target: str) -> None:
    """Made aside and renamed: an existing link changes its target in one step."""
    aside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:200]}.rackwright-new")
    refuse_foreign_links(path)
    try:
        if os.path.lexists(aside):
            os.unlink(aside)
        os.symlink(target, aside)
        os.rename(aside, path)
    except OSError as error:
        raise StateError(f"cannot make the link {path}: {error.strerror}; makedirs: true makes its folder") from error


def validate_symlink(arguments: Arguments) -> List[str]:
    errors = common.path_rules(arguments)
    target = str(arguments.get("target") or "")
    if not target:
        errors.append("target: is empty; name what the link should point to")
    path = os.path.normpath(str(arguments["name"]))
    if target and os.path.normpath(os.path.join(os.path.dirname(path), target)) == path:
        errors.append(f"target: {target} is the link itself; name what it should point to")
    if "/" in str(arguments.get("backupname") or ""):
        errors.append("backupname: is a name in the same folder, without a slash")
    return errors


FUNCTIONS = (
    StateFunction(
        "absent",
        "Nothing is at this path: a file, a link, or a folder with all that is in it, is removed.",
        (common.NAME,),
        check_absent,
        carry_out,
        validate=common.path_rules,
        resources=common.path_resource,
    ),
    StateFunction(
        "symlink",
        "A symbolic link to `target`. A link with another target is changed in one step.",
        (
            common.NAME,
            Argument("target", help="what the link points to; it need not exist", required=True),
            Argument("force", "bool", help="replace a file or folder that is in the way", default=False),
            Argument("backupname", help="move what is in the way to this name in the same folder"),
            common.MAKEDIRS,
            common.DIR_MODE,
            common.USER,
            common.GROUP,
        ),
        check_symlink,
        carry_out,
        validate=validate_symlink,
        resources=common.path_resource,
    ),
)
