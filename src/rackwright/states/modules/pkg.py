"""Packages: installed (at a version), at the latest, removed, purged. The package database is read once a run.

The package managers themselves are in `support/packages`; several states become one transaction through `batch`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..module import Argument, Arguments, Check, Context, Resource, Result, StateError, StateFunction
from ..support.packages import Inventory, Options, Packages, Target, packages
from ..support.packages.versions import satisfies

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:-]*")
VERSION = re.compile(r"[A-Za-z0-9.+:~^*?<>=!,_ -]+")


@dataclass(frozen=True)
class Wish:
    """One package a state names, and the version it asks for ("" for any)."""

    name: str
    version: str = ""


@dataclass(frozen=True)
class Work:
    """What a state has to do; found by check, done by apply."""

    install: Tuple[Wish, ...] = ()
    remove: Tuple[str, ...] = ()
    hold: Tuple[str, ...] = ()
    unhold: Tuple[str, ...] = ()
    purge: bool = False


def wishes(arguments: Arguments) -> List[Wish]:
    """`pkgs` (names, or NAME: VERSION) if given, else `name` and `version`."""
    listed = arguments.get("pkgs")
    if not listed:
        return [Wish(str(arguments["name"]), str(arguments.get("version") or ""))]
    found = []
    for entry in listed:
        pairs: List[Tuple[Any, Any]] = list(entry.items()) if isinstance(entry, dict) else [(entry, None)]
        found += [Wish(str(name), "" if version is None else str(version)) for name, version in pairs]
    return found


def session(arguments: Arguments, context: Context) -> Packages:
    return packages(str(arguments.get("provider") or ""), str(arguments.get("root") or ""), context)


def options(arguments: Arguments) -> Options:
    return Options(
        fromrepo=str(arguments.get("fromrepo") or ""),
        skip_verify=bool(arguments.get("skip_verify")),
        install_recommends=arguments.get("install_recommends"),
        change_held=bool(arguments.get("update_holds")),
    )


def validate(arguments: Arguments) -> List[str]:
    errors = []
    if arguments.get("pkgs") and arguments.get("version"):
        errors.append("version cannot go with pkgs; write the versions in the list, `- NAME: VERSION`")
    for entry in arguments.get("pkgs") or []:
        if not isinstance(entry, (str, dict)):
            errors.append(f"pkgs: {entry!r} is neither a name nor NAME: VERSION")
            return errors
    for wish in wishes(arguments):
        if not NAME.fullmatch(wish.name):
            errors.append(f"{wish.name!r} is no package name")
        if wish.version and not VERSION.fullmatch(wish.version):
            errors.append(f"{wish.name}: {wish.version!r} is no version")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("package", wish.name) for wish in wishes(arguments)]


def check_installed(arguments: Arguments, context: Context) -> Check:
    view = session(arguments, context)
    has = view.inventory()
    if any(wish.version == "latest" for wish in wishes(arguments)):
        _refresh_for_check(view, arguments, context)
    missing = [wish for wish in wishes(arguments) if not _satisfied(wish, has, view)]
    changes = _version_changes(missing, has, view, context)
    hold, unhold = _hold_changes(arguments, has, changes)
    _refuse_held(missing, has, arguments)
    return _check(Work(tuple(missing), hold=hold, unhold=unhold), changes, arguments, "installed")


def check_latest(arguments: Arguments, context: Context) -> Check:
    view = session(arguments, context)
    _refresh_for_check(view, arguments, context)
    has = view.inventory()
    wanted = [Wish(wish.name, "latest") for wish in wishes(arguments)]
    missing = [wish for wish in wanted if not _satisfied(wish, has, view)]
    _refuse_held(missing, has, arguments)
    return _check(
        Work(tuple(missing)), _version_changes(missing, has, view, context), arguments, "at the latest version"
    )


def _check(work: Work, changes: Dict[str, Any], arguments: Arguments, state: str) -> Check:
    names = ", ".join(wish.name for wish in wishes(arguments))
    would = f"Packages would be changed: {', '.join(changes)}"
    return Check(changes, would if changes else f"All specified packages are {state}: {names}", found=work)


def _satisfied(wish: Wish, has: Inventory, view: Packages) -> bool:
    version = has.version(wish.name)
    if version is None:
        return not wish.version and wish.name in has.provided
    if wish.version == "latest":
        newest = view.available([wish.name]).get(wish.name)
        return newest is None or view.backend.compare(version, newest.candidate) >= 0
    return not wish.version or satisfies(version, wish.version, view.backend.compare)


def _version_changes(missing: Sequence[Wish], has: Inventory, view: Packages, context: Context) -> Dict[str, Any]:
    """As Salt says them. A real run tells the versions afterwards, so only a dry run asks the package lists for them;
    what these do not know yet (its repository may come with this run) is just "installed"."""
    if context.test:
        view.available([wish.name for wish in missing])
    changes: Dict[str, Any] = {}
    for wish in missing:
        exact = _choose(wish, view) if context.test or wish.version else None
        changes[wish.name] = {"old": has.version(wish.name) or "", "new": exact or wish.version or "installed"}
    return changes


def _choose(wish: Wish, view: Packages) -> Optional[str]:
    """The version that would be installed for a wish: the candidate if it fits, else the newest that does."""
    found = view.available([wish.name]).get(wish.name)
    if found is None:
        return None
    if wish.version in ("", "latest"):
        return found.candidate
    fitting = [
        version
        for version in (found.candidate, *found.versions)
        if satisfies(version, wish.version, view.backend.compare)
    ]
    return fitting[0] if fitting else None


def _hold_changes(
    arguments: Arguments, has: Inventory, changes: Dict[str, Any]
) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    if arguments.get("hold") is None:
        return (), ()
    names = [wish.name for wish in wishes(arguments)]
    hold = tuple(name for name in names if arguments["hold"] and has.plain(name) not in has.held)
    unhold = tuple(name for name in names if not arguments["hold"] and has.plain(name) in has.held)
    for name in (*hold, *unhold):
        changes.setdefault(name, {}).update(hold={"old": has.plain(name) in has.held, "new": bool(arguments["hold"])})
    return hold, unhold


def _refuse_held(missing: Sequence[Wish], has: Inventory, arguments: Arguments) -> None:
    held = [wish.name for wish in missing if has.plain(wish.name) in has.held]
    if held and not arguments.get("update_holds"):
        raise StateError(f"held back at their version: {', '.join(held)}; set update_holds: true to change them anyway")


def _refresh_for_check(view: Packages, arguments: Arguments, context: Context) -> None:
    """What is the latest can only be said by fresh lists; a dry run takes the lists as they are."""
    if context.test or arguments.get("refresh") is False:
        return
    if arguments.get("refresh") is True:
        view.refresh_once(context.log)
    else:
        _refresh_if_possible(view, context)


def check_removed(purge: bool, arguments: Arguments, context: Context) -> Check:
    has = session(arguments, context).inventory()
    changes: Dict[str, Any] = {}
    for wish in wishes(arguments):
        version = has.version(wish.name)
        if version is not None and (not wish.version or wish.version == version):
            changes[wish.name] = {"old": version, "new": ""}
        elif purge and has.plain(wish.name) in has.residual:
            changes[wish.name] = {"old": "configuration files", "new": ""}
    work = Work(remove=tuple(changes), purge=purge)
    return _check(work, changes, arguments, "purged" if purge else "absent")


def apply(arguments: Arguments, check: Check, context: Context) -> Result:
    view, work = session(arguments, context), check.found
    with view.lock:
        before = view.inventory()
        _carry_out(work, arguments, view, context)
        return _outcome(work, before, view, check)


def _carry_out(work: Work, arguments: Arguments, view: Packages, context: Context) -> None:
    if work.unhold:
        view.hold(work.unhold, False)
    if work.install:
        if arguments.get("refresh") is True:
            view.refresh(context.log)
        elif arguments.get("refresh") is None:
            _refresh_if_possible(view, context)
        targets, downgrade = _targets(work.install, view)
        chosen = options(arguments)
        view.install(
            targets,
            Options(chosen.fromrepo, chosen.skip_verify, chosen.install_recommends, downgrade, chosen.change_held),
            context.log,
        )
    if work.remove:
        view.remove(work.remove, work.purge, context.log)
    if work.hold:
        view.hold(work.hold, True)


def _refresh_if_possible(view: Packages, context: Context) -> None:
    """One repository that cannot be reached must not stop packages that others have; what is missing fails below."""
    try:
        view.refresh_once(context.log)
    except StateError as error:
        context.log(f"going on with the package lists as they are: {error}")


def _targets(wanted: Sequence[Wish], view: Packages) -> Tuple[List[Target], bool]:
    has = view.inventory()
    available = view.available([wish.name for wish in wanted if wish.version])
    targets, downgrade = [], False
    for wish in wanted:
        exact = None
        if wish.version not in ("", "latest"):
            exact = _choose(wish, view)
            if exact is None:
                there = available[wish.name].versions if wish.name in available else ()
                known = f"there are {', '.join(there[:5])}" if there else "no repository has any"
                raise StateError(f"no version of {wish.name} fits {wish.version!r}; {known}")
            installed = has.version(wish.name)
            downgrade = downgrade or (installed is not None and view.backend.compare(exact, installed) < 0)
        targets.append(Target(wish.name, exact))
    return targets, downgrade


def _outcome(work: Work, before: Inventory, view: Packages, check: Check) -> Result:
    """What really changed, dependencies included, and whether it is what was wanted."""
    after = view.inventory()
    changes = difference(before, after)
    for name, change in check.changes.items():
        if "hold" in change:
            changes.setdefault(name, {})["hold"] = change["hold"]
        elif name not in changes and name in before.residual and name not in after.residual:
            changes[name] = change
    unmet = [wish.name for wish in work.install if not _satisfied(wish, after, view)]
    unmet += [name for name in work.remove if after.version(name) is not None]
    if unmet:
        return Result(
            False, changes, f"The package manager ended well, but this did not come about: {', '.join(unmet)}"
        )
    return Result(True, changes, f"Packages were changed: {', '.join(changes)}")


def difference(before: Inventory, after: Inventory) -> Dict[str, Any]:
    changes: Dict[str, Any] = {}
    for name in sorted(before.versions.keys() | after.versions.keys()):
        old, new = before.versions.get(name, ""), after.versions.get(name, "")
        if old != new:
            changes[name] = {"old": old, "new": new}
    return changes


def batch(check: Callable[[Arguments, Context], Check], several: Sequence[Arguments], context: Context) -> List[Result]:
    """Several states in as few transactions as their options allow: one, mostly.

    A transaction that fails has failed for all of its states; the engine then tries each alone.
    """
    results: Dict[int, Result] = {}
    groups: Dict[Any, List[Tuple[int, Check]]] = {}
    for at, arguments in enumerate(several):
        try:
            found = check(arguments, context)
        except StateError as error:
            results[at] = Result(False, {}, str(error))
            continue
        if not found.changes:
            results[at] = Result(True, {}, found.comment)
        else:
            key = (arguments.get("provider"), arguments.get("root"), arguments.get("refresh"), options(arguments))
            groups.setdefault(key, []).append((at, found))
    for members in groups.values():
        merged = _merged([several[at] for at, _ in members], [found for _, found in members], context)
        results.update({at: result for (at, _), result in zip(members, merged)})
    return [results[at] for at in range(len(several))]


def _merged(several: Sequence[Arguments], checks: Sequence[Check], context: Context) -> List[Result]:
    """One result a state from one transaction."""
    works: List[Work] = [check.found for check in checks]
    work = Work(
        install=tuple(dict.fromkeys(wish for one in works for wish in one.install)),
        remove=tuple(dict.fromkeys(name for one in works for name in one.remove)),
        hold=tuple(dict.fromkeys(name for one in works for name in one.hold)),
        unhold=tuple(dict.fromkeys(name for one in works for name in one.unhold)),
        purge=works[0].purge,
    )
    view = session(several[0], context)
    with view.lock:
        before = view.inventory()
        try:
            _carry_out(work, several[0], view, context)
        except StateError as error:
            return [Result(False, {}, str(error)) for _ in several]
        return _shares(works, before, view, checks)


def _shares(works: Sequence[Work], before: Inventory, view: Packages, checks: Sequence[Check]) -> List[Result]:
    """Each state's own packages; what came along as a dependency is told once, by the first state."""
    after = view.inventory()
    changes = difference(before, after)
    named = {name for check in checks for name in check.changes}
    results = []
    for place, (work, check) in enumerate(zip(works, checks)):
        whole = _outcome(work, before, view, check)
        own = {name: change for name, change in whole.changes.items() if name in check.changes}
        if place == 0:
            own.update({name: change for name, change in changes.items() if name not in named})
        comment = f"Packages were changed: {', '.join(own)}" if whole.ok else whole.comment
        if len(works) > 1:
            comment += f" (in one transaction with {len(works) - 1} more states)"
        results.append(Result(whole.ok, own, comment))
    return results


PACKAGE = Argument("name", help="the package", required=True)
PKGS = Argument(
    "pkgs",
    "list",
    help="several packages, in place of name: names, or NAME: VERSION",
)
PROVIDER = Argument("provider", help="the package manager; found by itself", choices=("apt", "dnf", "packagekit"))
ROOT = Argument("root", help="a folder with another system in it (an image), in place of this machine")
INSTALLING = (
    Argument("refresh", "bool", help="read the package lists again first: true always, false never, else once a run"),
    Argument("fromrepo", help="take it from this release (apt) or repository (dnf)"),
    Argument("skip_verify", "bool", help="install packages without a valid signature", default=False),
    Argument("install_recommends", "bool", help="with what the package recommends; as the system is set if not given"),
    Argument("update_holds", "bool", help="change packages that are held back too", default=False),
    PROVIDER,
    ROOT,
)

FUNCTIONS = (
    StateFunction(
        "installed",
        "The package is installed; with `version`, at that version: exact, a glob (1.2*), comparisons (>=1.2,<2), "
        "or `latest`. Several such states become one transaction in `genius` mode.",
        (
            PACKAGE,
            Argument("version", help="the version wanted"),
            PKGS,
            Argument("hold", "bool", help="hold the package at its version (true) or let it go (false)"),
            *INSTALLING,
        ),
        check_installed,
        apply,
        validate=validate,
        resources=resources,
        batch=partial(batch, check_installed),
    ),
    StateFunction(
        "latest",
        "The package is installed at the latest version the repositories have.",
        (PACKAGE, PKGS, *INSTALLING),
        check_latest,
        apply,
        validate=validate,
        resources=resources,
        batch=partial(batch, check_latest),
    ),
    StateFunction(
        "removed",
        "The package is not installed; its configuration files may stay.",
        (PACKAGE, Argument("version", help="only if it is this version"), PKGS, PROVIDER, ROOT),
        partial(check_removed, False),
        apply,
        validate=validate,
        resources=resources,
        batch=partial(batch, partial(check_removed, False)),
    ),
    StateFunction(
        "purged",
        "The package is not installed, and its configuration files are gone too.",
        (PACKAGE, Argument("version", help="only if it is this version"), PKGS, PROVIDER, ROOT),
        partial(check_removed, True),
        apply,
        validate=validate,
        resources=resources,
        batch=partial(batch, partial(check_removed, True)),
    ),
)
