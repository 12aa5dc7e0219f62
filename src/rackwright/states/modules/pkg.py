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
class RequestedPackage:
    """A package that a state names, and its version ("" for any)."""

    name: str
    version: str = ""


@dataclass(frozen=True)
class PackageChanges:
    """What a state has to change; found by check, done by apply."""

    install: Tuple[RequestedPackage, ...] = ()
    remove: Tuple[str, ...] = ()
    hold: Tuple[str, ...] = ()
    unhold: Tuple[str, ...] = ()
    purge: bool = False


def requested_packages(arguments: Arguments) -> List[RequestedPackage]:
    """Return the packages of a state: `pkgs` (names, or NAME: VERSION) if given, else `name` and `version`."""
    pkgs = arguments.get("pkgs")
    if not pkgs:
        return [RequestedPackage(str(arguments["name"]), str(arguments.get("version") or ""))]
    requested = []
    for entry in pkgs:
        pairs: List[Tuple[Any, Any]] = list(entry.items()) if isinstance(entry, dict) else [(entry, None)]
        requested += [RequestedPackage(str(name), "" if version is None else str(version)) for name, version in pairs]
    return requested


def view_of_packages(arguments: Arguments, context: Context) -> Packages:
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
    for package in requested_packages(arguments):
        if not NAME.fullmatch(package.name):
            errors.append(f"{package.name!r} is no package name")
        if package.version and not VERSION.fullmatch(package.version):
            errors.append(f"{package.name}: {package.version!r} is no version")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("package", package.name) for package in requested_packages(arguments)]


def check_installed(arguments: Arguments, context: Context) -> Check:
    view = view_of_packages(arguments, context)
    inventory = view.inventory()
    if any(package.version == "latest" for package in requested_packages(arguments)):
        _refresh_for_check(view, arguments, context)
    missing = [package for package in requested_packages(arguments) if not _satisfied(package, inventory, view)]
    changes = _version_changes(missing, inventory, view, context)
    hold, unhold = _hold_changes(arguments, inventory, changes)
    _refuse_held(missing, inventory, arguments)
    return _check(PackageChanges(tuple(missing), hold=hold, unhold=unhold), changes, arguments, "installed")


def check_latest(arguments: Arguments, context: Context) -> Check:
    view = view_of_packages(arguments, context)
    _refresh_for_check(view, arguments, context)
    inventory = view.inventory()
    latest = [RequestedPackage(package.name, "latest") for package in requested_packages(arguments)]
    missing = [package for package in latest if not _satisfied(package, inventory, view)]
    _refuse_held(missing, inventory, arguments)
    return _check(
        PackageChanges(tuple(missing)),
        _version_changes(missing, inventory, view, context),
        arguments,
        "at the latest version",
    )


def _check(work: PackageChanges, changes: Dict[str, Any], arguments: Arguments, state: str) -> Check:
    names = ", ".join(package.name for package in requested_packages(arguments))
    would = f"Packages would be changed: {', '.join(changes)}"
    return Check(changes, would if changes else f"All specified packages are {state}: {names}", found=work)


def _satisfied(package: RequestedPackage, inventory: Inventory, view: Packages) -> bool:
    version = inventory.version(package.name)
    if version is None:
        return not package.version and package.name in inventory.provided
    if package.version == "latest":
        newest = view.available([package.name]).get(package.name)
        return newest is None or view.backend.compare(version, newest.candidate) >= 0
    return not package.version or satisfies(version, package.version, view.backend.compare)


def _version_changes(
    missing: Sequence[RequestedPackage], inventory: Inventory, view: Packages, context: Context
) -> Dict[str, Any]:
    """Return the changes of versions in Salt's words.

    A real run tells the versions afterwards, so only a dry run asks the package lists for them; a package that these do
    not have yet (its repository may come with this run) is just "installed".
    """
    if context.test:
        view.available([package.name for package in missing])
    changes: Dict[str, Any] = {}
    for package in missing:
        exact = _choose_version(package, view) if context.test or package.version else None
        changes[package.name] = {
            "old": inventory.version(package.name) or "",
            "new": exact or package.version or "installed",
        }
    return changes


def _choose_version(package: RequestedPackage, view: Packages) -> Optional[str]:
    """Return the version that would be installed: the candidate if it fits, else the newest that does."""
    available = view.available([package.name]).get(package.name)
    if available is None:
        return None
    if package.version in ("", "latest"):
        return available.candidate
    matching = [
        version
        for version in (available.candidate, *available.versions)
        if satisfies(version, package.version, view.backend.compare)
    ]
    return matching[0] if matching else None


def _hold_changes(
    arguments: Arguments, inventory: Inventory, changes: Dict[str, Any]
) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    if arguments.get("hold") is None:
        return (), ()
    names = [package.name for package in requested_packages(arguments)]
    hold = tuple(name for name in names if arguments["hold"] and inventory.plain(name) not in inventory.held)
    unhold = tuple(name for name in names if not arguments["hold"] and inventory.plain(name) in inventory.held)
    for name in (*hold, *unhold):
        changes.setdefault(name, {}).update(
            hold={"old": inventory.plain(name) in inventory.held, "new": bool(arguments["hold"])}
        )
    return hold, unhold


def _refuse_held(missing: Sequence[RequestedPackage], inventory: Inventory, arguments: Arguments) -> None:
    held = [package.name for package in missing if inventory.plain(package.name) in inventory.held]
    if held and not arguments.get("update_holds"):
        raise StateError(f"held back at their version: {', '.join(held)}; set update_holds: true to change them anyway")


def _refresh_for_check(view: Packages, arguments: Arguments, context: Context) -> None:
    """Refresh the lists: only fresh lists have the latest version. A dry run takes the lists as they are."""
    if context.test or arguments.get("refresh") is False:
        return
    if arguments.get("refresh") is True:
        view.refresh_once(context.log)
    else:
        _refresh_if_possible(view, context)


def check_removed(purge: bool, arguments: Arguments, context: Context) -> Check:
    inventory = view_of_packages(arguments, context).inventory()
    changes: Dict[str, Any] = {}
    for package in requested_packages(arguments):
        version = inventory.version(package.name)
        if version is not None and (not package.version or package.version == version):
            changes[package.name] = {"old": version, "new": ""}
        elif purge and inventory.plain(package.name) in inventory.residual:
            changes[package.name] = {"old": "configuration files", "new": ""}
    work = PackageChanges(remove=tuple(changes), purge=purge)
    return _check(work, changes, arguments, "purged" if purge else "absent")


def apply(arguments: Arguments, check: Check, context: Context) -> Result:
    view, work = view_of_packages(arguments, context), check.found
    with view.lock:
        before = view.inventory()
        _carry_out(work, arguments, view, context)
        return _compare_inventories(work, before, view, check)


def _carry_out(work: PackageChanges, arguments: Arguments, view: Packages, context: Context) -> None:
    if work.unhold:
        view.hold(work.unhold, False)
    if work.install:
        if arguments.get("refresh") is True:
            view.refresh(context.log)
        elif arguments.get("refresh") is None:
            _refresh_if_possible(view, context)
        targets, downgrade = _targets(work.install, view)
        base_options = options(arguments)
        view.install(
            targets,
            Options(
                base_options.fromrepo,
                base_options.skip_verify,
                base_options.install_recommends,
                downgrade,
                base_options.change_held,
            ),
            context.log,
        )
    if work.remove:
        view.remove(work.remove, work.purge, context.log)
    if work.hold:
        view.hold(work.hold, True)


def _refresh_if_possible(view: Packages, context: Context) -> None:
    """Refresh the lists, and go on if that fails: packages of other repositories can still be installed."""
    try:
        view.refresh_once(context.log)
    except StateError as error:
        context.log(f"going on with the package lists as they are: {error}")


def _targets(requested: Sequence[RequestedPackage], view: Packages) -> Tuple[List[Target], bool]:
    inventory = view.inventory()
    available = view.available([package.name for package in requested if package.version])
    targets, downgrade = [], False
    for package in requested:
        version = None
        if package.version not in ("", "latest"):
            version = _choose_version(package, view)
            if version is None:
                versions = available[package.name].versions if package.name in available else ()
                available_text = f"there are {', '.join(versions[:5])}" if versions else "no repository has any"
                raise StateError(f"no version of {package.name} fits {package.version!r}; {available_text}")
            installed = inventory.version(package.name)
            downgrade = downgrade or (installed is not None and view.backend.compare(version, installed) < 0)
        targets.append(Target(package.name, version))
    return targets, downgrade


def _compare_inventories(work: PackageChanges, before: Inventory, view: Packages, check: Check) -> Result:
    """Return what really changed, dependencies included, and whether the state is reached."""
    after = view.inventory()
    changes = difference(before, after)
    for name, change in check.changes.items():
        if "hold" in change:
            changes.setdefault(name, {})["hold"] = change["hold"]
        elif name not in changes and name in before.residual and name not in after.residual:
            changes[name] = change
    unmet = [package.name for package in work.install if not _satisfied(package, after, view)]
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


def batch(check: Callable[[Arguments, Context], Check], states: Sequence[Arguments], context: Context) -> List[Result]:
    """Apply several states in as few transactions as their options allow: one, mostly.

    A transaction that fails has failed for all of its states; the engine then tries each alone.
    """
    results: Dict[int, Result] = {}
    groups: Dict[Any, List[Tuple[int, Check]]] = {}
    for index, arguments in enumerate(states):
        try:
            result_of_check = check(arguments, context)
        except StateError as error:
            results[index] = Result(False, {}, str(error))
            continue
        if not result_of_check.changes:
            results[index] = Result(True, {}, result_of_check.comment)
        else:
            key = (arguments.get("provider"), arguments.get("root"), arguments.get("refresh"), options(arguments))
            groups.setdefault(key, []).append((index, result_of_check))
    for members in groups.values():
        merged = _apply_merged(
            [states[index] for index, _ in members], [result_of_check for _, result_of_check in members], context
        )
        results.update({index: result for (index, _), result in zip(members, merged)})
    return [results[index] for index in range(len(states))]


def _apply_merged(states: Sequence[Arguments], checks: Sequence[Check], context: Context) -> List[Result]:
    """Apply several states in one transaction and return one result for each."""
    works: List[PackageChanges] = [check.found for check in checks]
    work = PackageChanges(
        install=tuple(dict.fromkeys(package for state_work in works for package in state_work.install)),
        remove=tuple(dict.fromkeys(name for state_work in works for name in state_work.remove)),
        hold=tuple(dict.fromkeys(name for state_work in works for name in state_work.hold)),
        unhold=tuple(dict.fromkeys(name for state_work in works for name in state_work.unhold)),
        purge=works[0].purge,
    )
    view = view_of_packages(states[0], context)
    with view.lock:
        before = view.inventory()
        try:
            _carry_out(work, states[0], view, context)
        except StateError as error:
            return [Result(False, {}, str(error)) for _ in states]
        return _split_results(works, before, view, checks)


def _split_results(
    works: Sequence[PackageChanges], before: Inventory, view: Packages, checks: Sequence[Check]
) -> List[Result]:
    """Return each state's result with its own packages; dependencies are in the result of the first state."""
    after = view.inventory()
    changes = difference(before, after)
    named_packages = {name for check in checks for name in check.changes}
    results = []
    for index, (work, check) in enumerate(zip(works, checks)):
        result = _compare_inventories(work, before, view, check)
        own_changes = {name: change for name, change in result.changes.items() if name in check.changes}
        if index == 0:
            own_changes.update({name: change for name, change in changes.items() if name not in named_packages})
        comment = f"Packages were changed: {', '.join(own_changes)}" if result.ok else result.comment
        if len(works) > 1:
            comment += f" (in one transaction with {len(works) - 1} more states)"
        results.append(Result(result.ok, own_changes, comment))
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
