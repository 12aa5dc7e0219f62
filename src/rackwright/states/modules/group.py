"""Groups: present with the given number and members, or absent."""

from __future__ import annotations

import re
from functools import partial
from typing import List, Optional

from ..module import Argument, Arguments, Check, Context, Resource, StateError, StateFunction
from ..support.accounts import Accounts, Group
from ..support.plan import Plan, carry_out

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]*\$?")


def check_present(arguments: Arguments, context: Context) -> Check:
    accounts, name = Accounts(str(arguments.get("root") or "")), str(arguments["name"])
    group = accounts.group(name)
    gid = arguments.get("gid")
    plan = Plan()
    if group is None:
        flags = (["--system"] if arguments["system"] else []) + (["--gid", str(gid)] if gid is not None else [])
        plan.step(partial(accounts.change, "groupadd", flags, name), name=name)
    elif gid is not None and group.gid != gid:
        plan.step(partial(accounts.change, "groupmod", ["--gid", str(gid)], name), gid={"old": group.gid, "new": gid})
    members = _desired_members(arguments, group)
    old_members = sorted(group.members) if group else []
    if members is not None and members != old_members:
        unknown = [user for user in members if accounts.user(user) is None]
        if unknown and not context.test:
            raise StateError(f"there is no user {', '.join(unknown)}; add user.present states and require them")
        plan.changes["members"] = {"old": old_members, "new": members}
        for user in sorted({*members, *old_members}):
            if (user in members) != (user in old_members):
                plan.step(partial(_set_member, accounts, user, name, user in members))
    return plan.check(
        f"Group {name} is present and up to date", f"Group {name} would be {'updated' if group else 'added'}"
    )


def _desired_members(arguments: Arguments, group: Optional[Group]) -> Optional[List[str]]:
    if arguments.get("members") is not None:
        return sorted({str(user) for user in arguments["members"]})
    if not arguments.get("addusers") and not arguments.get("delusers"):
        return None
    members = set(group.members) if group else set()
    members |= {str(user) for user in arguments.get("addusers") or []}
    return sorted(members - {str(user) for user in arguments.get("delusers") or []})


def _set_member(accounts: Accounts, user: str, group: str, is_member: bool) -> None:
    """Add or remove a member, through usermod: gpasswd works only on the machine's own root."""
    group_names = {other_group.name for other_group in accounts.groups() if user in other_group.members} - {group}
    group_names |= {group} if is_member else set()
    accounts.change("usermod", ["--groups", ",".join(sorted(group_names))], user)


def check_absent(arguments: Arguments, context: Context) -> Check:
    accounts, name = Accounts(str(arguments.get("root") or "")), str(arguments["name"])
    plan = Plan()
    if accounts.group(name) is not None:
        plan.step(partial(accounts.change, "groupdel", [], name), **{name: "removed"})
    return plan.check(f"Group {name} is not present", f"Group {name} would be removed")


def validate(arguments: Arguments) -> List[str]:
    errors = []
    if not NAME.fullmatch(str(arguments["name"])) or len(str(arguments["name"])) > 32:
        errors.append(f"name: {arguments['name']!r} is no name for a group")
    if arguments.get("members") is not None and (arguments.get("addusers") or arguments.get("delusers")):
        errors.append("members says all of them; leave addusers and delusers out, or members")
    contradicting = {*(arguments.get("addusers") or [])} & {*(arguments.get("delusers") or [])}
    if contradicting:
        errors.append(f"in both addusers and delusers: {', '.join(sorted(str(user) for user in contradicting))}")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("group", str(arguments["name"]))]


ROOT = Argument("root", help="a folder with another system in it (an image), in place of this machine")

FUNCTIONS = (
    StateFunction(
        "present",
        "The group exists, with what is given here.",
        (
            Argument("name", help="the group", required=True),
            Argument("gid", "int", help="the group's number"),
            Argument("system", "bool", help="a new group gets a number of the system's range", default=False),
            Argument("members", "list", help="all members; others are taken out"),
            Argument("addusers", "list", help="users that must be members"),
            Argument("delusers", "list", help="users that must not be members"),
            ROOT,
        ),
        check_present,
        carry_out,
        validate=validate,
        resources=resources,
    ),
    StateFunction(
        "absent",
        "The group does not exist.",
        (Argument("name", help="the group", required=True), ROOT),
        check_absent,
        carry_out,
        validate=validate,
        resources=resources,
    ),
)
