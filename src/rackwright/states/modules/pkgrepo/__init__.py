"""Package repositories: there, with their key, or gone. A repository whose lists cannot be read is taken back.

The files themselves are in `apt.py` and `yum.py`; several states are followed by one refresh through `batch`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ...module import Argument, Arguments, Check, Context, Resource, Result, StateError, StateFunction
from ...support.files import Owner, make_folder, missing_parents, read_bytes, remove_all, unified_diff, write_whole
from ...support.packages import Packages, packages
from . import apt, yum


@dataclass(frozen=True)
class RepositoryChanges:
    """The files to write: path below root -> content (None: removed), and the source to refresh."""

    files: Dict[str, Optional[bytes]]
    source: str = ""


def view_of_packages(arguments: Arguments, context: Context) -> Packages:
    return packages(str(arguments.get("provider") or ""), root_of(arguments), context)


def root_of(arguments: Arguments) -> str:
    return str(arguments.get("root") or "").rstrip("/")


def check_managed(arguments: Arguments, context: Context) -> Check:
    root = root_of(arguments)
    if view_of_packages(arguments, context).backend.name == "apt":
        files, source = apt.wanted_files(arguments, context, root)
    else:
        files, source = yum.wanted_files(arguments, root)
    is_disabled = bool(arguments.get("disabled")) or not arguments.get("enabled", True)
    return _check(files, "" if is_disabled else source, arguments, ("configured", "configured"))


def check_absent(arguments: Arguments, context: Context) -> Check:
    root = root_of(arguments)
    on_apt = view_of_packages(arguments, context).backend.name == "apt"
    files = apt.files_without(arguments, root) if on_apt else yum.files_without(arguments, root)
    return _check(files, "", arguments, ("absent", "removed"))


def _check(files: Dict[str, Optional[bytes]], source: str, arguments: Arguments, words: Tuple[str, str]) -> Check:
    root, name = root_of(arguments), str(arguments["name"])
    changes: Dict[str, str] = {}
    for path, content in files.items():
        current = read_bytes(root + path)
        if current != content:
            changes[path] = "removed" if content is None else unified_diff(current, content, path)
    comment = f"Package repo {name} would be {words[1]}" if changes else f"Package repo {name} is already {words[0]}"
    return Check(changes, comment, found=RepositoryChanges({path: files[path] for path in changes}, source))


def apply(arguments: Arguments, check: Check, context: Context) -> Result:
    work: RepositoryChanges = check.found
    view = view_of_packages(arguments, context)
    with view.lock:
        before = _apply_files(work, arguments)
        if arguments.get("refresh", False) and work.source:
            try:
                view.refresh(context.log, _source(work, arguments))
            except StateError as error:
                # If it stayed, every later package state would fail, and the next run would find it configured.
                _write_files(before)
                raise StateError(f"the repository was taken back: {error}") from error
    return Result(True, check.changes, check.comment.replace("would be", "was"))


def _source(work: RepositoryChanges, arguments: Arguments) -> str:
    return root_of(arguments) + work.source if work.source.startswith("/") else work.source


def _apply_files(work: RepositoryChanges, arguments: Arguments) -> Dict[str, Optional[bytes]]:
    """Write the files and return their contents from before."""
    root = root_of(arguments)
    before = {root + path: read_bytes(root + path) for path in work.files}
    _write_files({root + path: content for path, content in work.files.items()})
    return before


def _write_files(files: Dict[str, Optional[bytes]]) -> None:
    for path, content in files.items():
        if content is None:
            remove_all(path)
            continue
        for folder in missing_parents(path):
            make_folder(folder, Owner(mode=0o755))
        write_whole(path, content, Owner(mode=0o644))


def batch(check: Callable[[Arguments, Context], Check], states: Sequence[Arguments], context: Context) -> List[Result]:
    """Write all repositories, then refresh once. If that fails, undo all; the engine then tries each alone."""
    results: Dict[int, Result] = {}
    written: List[Tuple[int, Check, Dict[str, Optional[bytes]]]] = []
    for index, arguments in enumerate(states):
        try:
            result_of_check = check(arguments, context)
            if result_of_check.changes:
                written.append((index, result_of_check, _apply_files(result_of_check.found, arguments)))
            results[index] = Result(True, result_of_check.changes, result_of_check.comment.replace("would be", "was"))
        except StateError as error:
            results[index] = Result(False, {}, str(error))
    try:
        _refresh_for_all([(states[index], result_of_check.found) for index, result_of_check, _ in written], context)
    except StateError as error:
        for index, _, before in reversed(written):
            _write_files(before)
            results[index] = Result(False, {}, f"the repositories were taken back: {error}")
    return [results[index] for index in range(len(states))]


def _refresh_for_all(written: Sequence[Tuple[Arguments, RepositoryChanges]], context: Context) -> None:
    """Fetch all lists, or only those of the new repositories where all were fetched in this run already."""
    refreshed = [
        (view_of_packages(arguments, context), arguments, work)
        for arguments, work in written
        if arguments.get("refresh")
    ]
    fetched = {id(view) for view, _, _ in refreshed if view.refreshed}
    for view in {id(view): view for view, _, _ in refreshed}.values():
        if id(view) not in fetched:
            view.refresh(context.log)
    for view, arguments, work in refreshed:
        if id(view) in fetched and work.source:
            view.refresh(context.log, _source(work, arguments))


def validate(arguments: Arguments) -> List[str]:
    errors = []
    name = str(arguments["name"])
    if "\n" in name or not name.strip():
        errors.append("name: give one line")
    if arguments.get("key_text") and arguments.get("key_url"):
        errors.append("key_text and key_url are both given; leave one out")
    if str(arguments.get("key_url") or "").startswith("http://") and not arguments.get("key_hash"):
        errors.append("key_url: a key over plain http needs key_hash (sha256=HEX), or anybody on the way can change it")
    for path in ("file", "signedby"):
        if arguments.get(path) and not str(arguments[path]).startswith("/"):
            errors.append(f"{path}: {arguments[path]!r} is no absolute path")
    if arguments.get("file") and not str(arguments["file"]).endswith((".list", ".sources", ".repo")):
        errors.append(
            f"file: {os.path.basename(arguments['file'])!r} would not be read; end it .list, .sources or .repo"
        )
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    written = [Resource("pkgrepo", str(arguments["name"]))]
    if arguments.get("file"):
        written.append(Resource("file", os.path.normpath(root_of(arguments) + str(arguments["file"]))))
    return written


NAME = Argument("name", help="apt: `deb ADDRESS SUITE COMPONENT ...`; dnf: the repository's id", required=True)
FILE = Argument("file", help="the file it is written in; one of its own if not given")
PROVIDER = Argument("provider", help="the package manager; found by itself", choices=("apt", "dnf"))
ROOT = Argument("root", help="a folder with another system in it (an image), in place of this machine")

FUNCTIONS = (
    StateFunction(
        "managed",
        "The repository is configured, with its key, and its lists are read. If they cannot be, everything is put "
        "back as it was and the state fails.",
        (
            NAME,
            FILE,
            Argument("enabled", "bool", help="false keeps it configured but unused", default=True),
            Argument("disabled", "bool", help="the opposite of enabled, as Salt also has it", default=False),
            Argument("comments", "list", help="lines of comment for the file"),
            Argument("refresh", "bool", help="read its lists after a change", default=True),
            Argument("dist", help="apt: the suite, in place of the one in name"),
            Argument("comps", "list", help="apt: the components, in place of those in name"),
            Argument("architectures", "list", help="apt: only these architectures"),
            Argument("deb822", "bool", help="apt: write a .sources file, not a .list file", default=False),
            Argument("key_url", help="apt: the signing key: a file of the state tree, a path or an https address"),
            Argument("key_text", help="apt: the signing key itself, armoured"),
            Argument("key_hash", help="sha256=HEX that key_url must have"),
            Argument("signedby", help="apt: the keyring file; one of its own if a key is given and this is not"),
            Argument("trusted", "bool", help="apt: use it without a signature", default=False),
            Argument("humanname", help="dnf: its name for people"),
            Argument("baseurl", help="dnf: its address"),
            Argument("mirrorlist", help="dnf: address of its list of mirrors"),
            Argument("metalink", help="dnf: address of its metalink"),
            Argument("gpgkey", "any", help="dnf: address of its key, or a list of them"),
            Argument("gpgcheck", "bool", help="dnf: check signatures of packages"),
            Argument("settings", "dict", help="dnf: any more settings of the section"),
            PROVIDER,
            ROOT,
        ),
        check_managed,
        apply,
        validate=validate,
        resources=resources,
        batch=partial(batch, check_managed),
    ),
    StateFunction(
        "absent",
        "The repository is in no source file; files that are empty then, and the key made for it, go too.",
        (NAME, FILE, PROVIDER, ROOT),
        check_absent,
        apply,
        validate=validate,
        resources=resources,
        batch=partial(batch, check_absent),
    ),
)
