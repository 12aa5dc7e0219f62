"""Users: present with the given identity, groups, home and password, or absent."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Dict, List, Optional

from ..module import Argument, Arguments, Check, Context, Resource, StateError, StateFunction
from ..support.accounts import Accounts, User
from ..support.plan import Plan, carry_out

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]*\$?")


def check_present(arguments: Arguments, context: Context) -> Check:
    accounts, name = Accounts(str(arguments.get("root") or "")), str(arguments["name"])
    user = accounts.user(name)
    plan = Plan()
    gid = _gid(arguments, accounts, context)
    groups = _groups(arguments, accounts, user, context)
    if user is None:
        _plan_new(plan, arguments, accounts, gid, groups)
    else:
        _plan_changes(plan, arguments, accounts, user, gid, groups)
    _plan_password(plan, arguments, accounts, user)
    return plan.check(
        f"User {name} is present and up to date", f"User {name} would be {'updated' if user else 'added'}"
    )


def _gid(arguments: Arguments, accounts: Accounts, context: Context) -> Optional[str]:
    """Return the primary group as a number, from a number or a name."""
    gid = arguments.get("gid")
    if gid is None or str(gid).isdigit():
        return None if gid is None else str(gid)
    group = accounts.group(str(gid))
    if group is None:
        if context.test:
            return str(gid)
        raise StateError(f"there is no group {gid!r} for the user; add a group.present state and require it")
    return str(group.gid)


def _groups(arguments: Arguments, accounts: Accounts, user: Optional[User], context: Context) -> Optional[List[str]]:
    """Return the supplementary groups that the user is to have; None if the state names none."""
    required, optional = arguments.get("groups"), arguments.get("optional_groups")
    if required is None and optional is None:
        return None
    existing = {group.name: group for group in accounts.groups()}
    missing = [str(name) for name in required or [] if str(name) not in existing]
    if missing and not context.test:
        raise StateError(f"there is no group {', '.join(missing)}; add group.present states and require them")
    groups = {str(name) for name in required or []} | {str(name) for name in optional or [] if str(name) in existing}
    if not arguments["remove_groups"]:
        groups |= {group.name for group in existing.values() if str(arguments["name"]) in group.members}
    return sorted(groups)


def _plan_new(
    plan: Plan, arguments: Arguments, accounts: Accounts, gid: Optional[str], groups: Optional[List[str]]
) -> None:
    name = str(arguments["name"])
    flags: List[str] = ["--system"] if arguments["system"] else []
    # On Debian useradd makes no home unless told to; on others it makes one unless told not to.
    flags.append("--create-home" if arguments["createhome"] and not arguments["system"] else "--no-create-home")
    if gid is not None:
        flags.append("--no-user-group")
    elif arguments.get("usergroup") is not None:
        flags.append("--user-group" if arguments["usergroup"] else "--no-user-group")
    changes: Dict[str, Any] = {"name": name}
    for flag, key, value in (
        ("--uid", "uid", arguments.get("uid")),
        ("--gid", "gid", gid),
        ("--home-dir", "home", arguments.get("home")),
        ("--shell", "shell", arguments.get("shell")),
        ("--comment", "fullname", arguments.get("fullname")),
        ("--groups", "groups", ",".join(groups) if groups else None),
    ):
        if value is not None:
            flags += [flag, str(value)]
            changes[key] = groups if key == "groups" else value
    plan.step(partial(accounts.change, "useradd", flags, name), **changes)


def _plan_changes(
    plan: Plan,
    arguments: Arguments,
    accounts: Accounts,
    user: User,
    gid: Optional[str],
    groups: Optional[List[str]],
) -> None:
    flags: List[str] = []
    for flag, key, desired, current in (
        ("--uid", "uid", arguments.get("uid"), user.uid),
        ("--gid", "gid", gid, user.gid),
        ("--home", "home", arguments.get("home"), user.home),
        ("--shell", "shell", arguments.get("shell"), user.shell),
        ("--comment", "fullname", arguments.get("fullname"), user.fullname),
    ):
        if desired is not None and str(desired) != str(current):
            flags += [flag, str(desired)]
            plan.changes[key] = {"old": current, "new": desired}
    if groups is not None:
        # The primary group is not listed among the members, but may be named.
        primary = accounts.group_by_gid(user.gid)
        has_groups = sorted(group.name for group in accounts.groups() if user.name in group.members)
        wanted_groups = [name for name in groups if primary is None or name != primary.name or name in has_groups]
        if wanted_groups != has_groups:
            flags += ["--groups", ",".join(wanted_groups)]
            plan.changes["groups"] = {"old": has_groups, "new": wanted_groups}
    if flags:
        plan.step(partial(accounts.change, "usermod", flags, user.name))


def _plan_password(plan: Plan, arguments: Arguments, accounts: Accounts, user: Optional[User]) -> None:
    desired = arguments.get("password")
    if desired is None:
        return
    current = accounts.password(str(arguments["name"])) if user is not None else None
    if user is None or (arguments["enforce_password"] and current != desired):
        plan.step(partial(accounts.set_password, str(arguments["name"]), str(desired)), passwd="XXX-REDACTED-XXX")  # noqa: S106


def check_absent(arguments: Arguments, context: Context) -> Check:
    accounts, name = Accounts(str(arguments.get("root") or "")), str(arguments["name"])
    plan = Plan()
    if accounts.user(name) is not None:
        flags = (["--remove"] if arguments["purge"] else []) + (["--force"] if arguments["force"] else [])
        plan.step(partial(accounts.change, "userdel", flags, name), **{name: "removed"})
    return plan.check(f"User {name} is not present", f"User {name} would be removed")


def validate(arguments: Arguments) -> List[str]:
    errors = []
    if not NAME.fullmatch(str(arguments["name"])) or len(str(arguments["name"])) > 32:
        errors.append(f"name: {arguments['name']!r} is no name for a user")
    password = arguments.get("password")
    if password is not None and not re.match(r"[!*]|\$[0-9a-z]+\$|_|[./0-9A-Za-z]{13}$", str(password)):
        errors.append("password: give its hash (mkpasswd or openssl passwd -6 make one), not the password itself")
    for key in ("fullname", "home", "shell"):
        if ":" in str(arguments.get(key) or "") or "\n" in str(arguments.get(key) or ""):
            errors.append(f"{key}: may hold neither a colon nor a new line")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("user", str(arguments["name"]))]


ROOT = Argument("root", help="a folder with another system in it (an image), in place of this machine")

FUNCTIONS = (
    StateFunction(
        "present",
        "The user exists, with what is given here; what is not given stays as it is.",
        (
            Argument("name", help="the user", required=True),
            Argument("uid", "int", help="the user's number"),
            Argument("gid", "any", help="the primary group, a number or a name"),
            Argument("usergroup", "bool", help="make a group of the same name for a new user"),
            Argument("groups", "list", help="supplementary groups"),
            Argument("optional_groups", "list", help="more of them, those that exist"),
            Argument("remove_groups", "bool", help="take the user out of groups that are not named", default=True),
            Argument("home", help="home folder"),
            Argument("createhome", "bool", help="make the home of a new user (never for a system user)", default=True),
            Argument("password", help="hash of the password, as in /etc/shadow", secret=True),
            Argument("enforce_password", "bool", help="set the password again if it was changed", default=True),
            Argument("shell", help="login shell"),
            Argument("fullname", help="the user's full name"),
            Argument("system", "bool", help="a new user gets a number of the system's range", default=False),
            ROOT,
        ),
        check_present,
        carry_out,
        validate=validate,
        resources=resources,
    ),
    StateFunction(
        "absent",
        "The user does not exist.",
        (
            Argument("name", help="the user", required=True),
            Argument("purge", "bool", help="remove the user's files (home) too", default=False),
            Argument("force", "bool", help="also if the user is logged in", default=False),
            ROOT,
        ),
        check_absent,
        carry_out,
        validate=validate,
        resources=resources,
    ),
)
