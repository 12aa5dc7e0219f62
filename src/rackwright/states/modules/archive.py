"""Archives: extracted into a folder, and safe against members that lead out of it.

Members are unpacked beside the folder and moved in one by one, each whole; nothing an archive says can write elsewhere.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import zipfile
from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, List, Optional, Tuple

from ..module import Argument, Arguments, Check, Context, Resource, StateError, StateFunction
from ..support.content import first_source, is_below, is_url, read_source, tree_path
from ..support.files import Owner, make_folder, missing_parents, owner_changes, remove_all, set_owner, status
from ..support.plan import Plan, carry_out

CACHE = "/var/cache/rackwright/archives"


@dataclass(frozen=True)
class Member:
    """One entry of an archive, with a path that is known to stay inside."""

    path: str
    kind: str
    """file, folder, symlink or hardlink"""
    mode: int
    size: int = 0
    link: str = ""
    read: Optional[Callable[[], bytes]] = None


def check(arguments: Arguments, context: Context) -> Check:
    target = os.path.normpath(str(arguments["name"]))
    if arguments.get("if_missing") and os.path.lexists(str(arguments["if_missing"])):
        return Check({}, f"{arguments['if_missing']} exists, so nothing is extracted", found=Plan())
    source = first_source(arguments["source"], context)
    if arguments["clean"] and not is_url(source) and is_below(tree_path(source, context.root), target):
        raise StateError(f"clean would remove the archive {source}, which lies in {target}; keep it elsewhere")
    members = read_members(_read_archive(source, arguments, context), source, arguments)
    plan = Plan()
    user, group = (None if arguments.get(key) is None else str(arguments[key]) for key in ("user", "group"))
    owner = Owner(user, group)
    missing = [member for member in members if arguments["overwrite"] or not _is_extracted(target, member)]
    surplus = _find_surplus(target, members) if arguments["clean"] else []
    if missing:
        plan.changes["extracted_files"] = [member.path for member in missing]
    if surplus:
        plan.changes["removed"] = surplus
    if missing or surplus:
        plan.step(partial(_extract, target, missing, surplus, owner))
    else:
        _plan_owners(plan, target, members, owner, context)
    return plan.check(f"{source} is already extracted in {target}", f"{source} would be extracted to {target}")


def _read_archive(source: str, arguments: Arguments, context: Context) -> bytes:
    """Return the archive's bytes; one from the network is cached under its hash for later runs."""
    source_hash = str(arguments.get("source_hash") or "")
    if not is_url(source):
        return read_source(source, context, source_hash)
    from ..support.content import split_hash
    from ..support.files import read_bytes, write_whole

    if not source_hash:
        raise StateError(f"source {source} needs a source_hash: what comes over the network has to be checked")
    cached = f"{CACHE}/{split_hash(source_hash)[1]}"
    if os.path.exists(cached):
        return read_source(cached, context, source_hash)
    content = read_source(source, context, source_hash)
    if not context.test:
        for folder in missing_parents(cached):
            make_folder(folder, Owner(mode=0o700))
        write_whole(cached, content, Owner(mode=0o600))
        if read_bytes(cached) != content:
            raise StateError(f"{cached} does not hold what was just written to it; is its disk sound?")
    return content


def read_members(content: bytes, source: str, arguments: Arguments) -> List[Member]:
    """Return the members with safe paths, without the folders that `strip` removes."""
    kind = arguments.get("archive_format") or ("zip" if zipfile.is_zipfile(io.BytesIO(content)) else "tar")
    try:
        raw = _zip_members(content) if kind == "zip" else _tar_members(content)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise StateError(f"{source} is no archive that can be read: {error}") from error
    members = [
        safe for safe in (_make_safe(member, source, int(arguments["strip"])) for member in raw) if safe is not None
    ]
    _refuse_writes_through_links(members, source)
    if arguments["enforce_toplevel"] and not arguments["strip"]:
        tops = {member.path.split("/")[0] for member in members}
        if len(tops) > 1:
            raise StateError(
                f"{source} has {len(tops)} entries at its top, which would spread over {arguments['name']}; "
                "set enforce_toplevel: false if this is wanted"
            )
    return members


def _tar_members(content: bytes) -> List[Member]:
    archive = tarfile.open(fileobj=io.BytesIO(content))  # noqa: SIM115 - members are read from it later
    members = []
    for entry in archive.getmembers():
        kinds = (
            (entry.isfile(), "file"),
            (entry.isdir(), "folder"),
            (entry.issym(), "symlink"),
            (entry.islnk(), "hardlink"),
        )
        kind = next((kind for holds, kind in kinds if holds), "special")
        read = partial(_read_tar, archive, entry) if kind == "file" else None
        members.append(Member(entry.name, kind, entry.mode & 0o777, entry.size, entry.linkname, read))
    return members


def _read_tar(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry)
    assert file is not None  # only regular files are read
    return file.read()


def _zip_members(content: bytes) -> List[Member]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    members = []
    for entry in archive.infolist():
        mode = entry.external_attr >> 16
        if entry.is_dir():
            members.append(Member(entry.filename, "folder", mode & 0o777 or 0o755))
        elif stat.S_ISLNK(mode):
            members.append(
                Member(entry.filename, "symlink", 0o777, link=archive.read(entry).decode("utf-8", "replace"))
            )
        else:
            read = partial(archive.read, entry)
            members.append(Member(entry.filename, "file", mode & 0o777 or 0o644, entry.file_size, read=read))
    return members


def _make_safe(member: Member, source: str, strip: int) -> Optional[Member]:
    """Return the member with a plain relative path; None if nothing is left of it. StateError if it is unsafe."""
    subject = f"{source}: the member {member.path!r}"
    if member.kind == "special":
        raise StateError(f"{subject} is a device or pipe; nothing was extracted")
    if member.path.startswith("/") or ".." in member.path.split("/"):
        raise StateError(f"{subject} leads out of the folder; nothing was extracted")
    parts = [part for part in member.path.split("/") if part not in ("", ".")][strip:]
    if not parts:
        return None
    path = "/".join(parts)
    link = member.link
    if member.kind == "symlink":
        inside = os.path.normpath(os.path.join(os.path.dirname(path), link))
        if link.startswith("/") or inside == ".." or inside.startswith("../"):
            raise StateError(f"{subject} is a link to {link!r}, out of the folder; nothing was extracted")
    if member.kind == "hardlink":
        if link.startswith("/") or ".." in link.split("/"):
            raise StateError(f"{subject} is a link to {link!r}, out of the folder; nothing was extracted")
        link = "/".join([part for part in link.split("/") if part not in ("", ".")][strip:])
    return Member(path, member.kind, member.mode, member.size, link, member.read)


def _refuse_writes_through_links(members: List[Member], source: str) -> None:
    links = {member.path for member in members if member.kind == "symlink"}
    for member in members:
        parts = member.path.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in links:
                raise StateError(f"{source}: the member {member.path!r} goes through a link; nothing was extracted")


def _is_extracted(target: str, member: Member) -> bool:
    path = os.path.join(target, member.path)
    file_status = status(path)
    if file_status is None:
        return False
    if member.kind == "folder":
        return stat.S_ISDIR(file_status.st_mode)
    if member.kind == "symlink":
        return stat.S_ISLNK(file_status.st_mode) and os.readlink(path) == member.link
    # A run that was killed may have left a part of a file; a complete file has the member's size.
    return stat.S_ISREG(file_status.st_mode) and (member.kind == "hardlink" or file_status.st_size == member.size)


def _find_surplus(target: str, members: List[Member]) -> List[str]:
    """Return the paths in the folder that are not in the archive, topmost only."""
    member_paths = {member.path for member in members}
    member_paths |= {os.path.dirname(path) for path in member_paths}
    for path in list(member_paths):
        while path:
            member_paths.add(path)
            path = os.path.dirname(path)
    surplus: List[str] = []
    for folder, folders, files in os.walk(target):
        relative_folder = os.path.relpath(folder, target)
        for name in sorted(folders + files):
            path = name if relative_folder == "." else f"{relative_folder}/{name}"
            if path not in member_paths:
                surplus.append(path)
        folders[:] = [
            name
            for name in folders
            if (name if relative_folder == "." else f"{relative_folder}/{name}") in member_paths
        ]
    return surplus


def _plan_owners(plan: Plan, target: str, members: List[Member], owner: Owner, context: Context) -> None:
    for member in members:
        path = os.path.join(target, member.path)
        changes = owner_changes(path, status(path), owner, context)
        if changes:
            plan.changes.setdefault("owners", {})[member.path] = changes
            plan.step(partial(set_owner, path, owner))


def _extract(target: str, members: List[Member], surplus: List[str], owner: Owner) -> None:
    for folder in (*missing_parents(target), target):
        make_folder(folder, Owner(mode=0o755) if not os.path.isdir(folder) else Owner())
    staging = os.path.join(target, ".rackwright-new")
    remove_all(staging)
    os.mkdir(staging, 0o700)
    try:
        for path in surplus:
            remove_all(os.path.join(target, path))
        modes: Dict[str, int] = {}
        for number, member in enumerate(members):
            if member.kind == "folder":
                modes[os.path.join(target, member.path)] = member.mode | 0o700
            _extract_member(target, member, os.path.join(staging, str(number)), owner)
        # Last and deepest first: a folder that may not be written must be full by then.
        for path in sorted(modes, reverse=True):
            os.chmod(path, modes[path])
    except OSError as error:
        raise StateError(f"cannot extract to {error.filename or target}: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract_member(target: str, member: Member, temporary: str, owner: Owner) -> None:
    path = os.path.join(target, member.path)
    for folder in missing_parents(path):
        make_folder(folder, Owner(owner.user, owner.group, 0o755))
    if os.path.realpath(os.path.dirname(path)) != os.path.normpath(
        os.path.join(os.path.realpath(target), os.path.dirname(member.path))
    ):
        raise StateError(
            f"{os.path.dirname(path)} is a link that was there before; what is extracted would land elsewhere"
        )
    if member.kind == "folder":
        if not os.path.isdir(path) or os.path.islink(path):
            remove_all(path)
            os.mkdir(path)
        set_owner(path, owner)
        return
    if member.kind == "symlink":
        os.symlink(member.link, temporary)
    elif member.kind == "hardlink":
        os.link(os.path.join(target, member.link), temporary, follow_symlinks=False)
    else:
        assert member.read is not None  # files have one
        with open(temporary, "xb") as file:
            file.write(member.read())
        os.chmod(temporary, member.mode)
    set_owner(temporary, owner)
    if os.path.isdir(path) and not os.path.islink(path):
        raise StateError(f"{path} is a folder where the archive has a file; remove it first")
    os.replace(temporary, path)


def validate(arguments: Arguments) -> List[str]:
    errors = []
    for key in ("name", "if_missing"):
        if arguments.get(key) and not str(arguments[key]).startswith("/"):
            errors.append(f"{key}: {arguments[key]!r} is no absolute path")
    if os.path.normpath(str(arguments["name"])) == "/" and arguments.get("clean"):
        errors.append("clean: everything in / that the archive has not would be removed")
    if not isinstance(arguments["source"], (str, list)):
        errors.append("source: give a path or a list of paths")
    if arguments.get("strip", 0) < 0:
        errors.append("strip: 0 or more")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("file", os.path.normpath(str(arguments["name"])))]


FORMATS: Tuple[str, ...] = ("tar", "zip")

FUNCTIONS = (
    StateFunction(
        "extracted",
        "An archive's members are all in a folder. tar (plain, gz, bz2, xz) and zip. An archive with members that lead "
        "out of the folder, or with devices, is refused as a whole.",
        (
            Argument("name", help="absolute path of the folder to extract to", required=True),
            Argument(
                "source", "any", help="path in the state tree (salt:// or plain), absolute path or URL", required=True
            ),
            Argument("source_hash", help="sha256=HEX (or sha384, sha512) the archive must have; required for a URL"),
            Argument("archive_format", help="found by itself if not given", choices=FORMATS),
            Argument("strip", "int", help="leave out so many leading folders of each member", default=0),
            Argument(
                "enforce_toplevel", "bool", help="refuse an archive with more than one entry at its top", default=True
            ),
            Argument("overwrite", "bool", help="extract every time, also what is there", default=False),
            Argument("clean", "bool", help="remove what is in the folder and not in the archive", default=False),
            Argument("if_missing", help="do nothing if this path exists"),
            Argument("user", help="owner of what is extracted"),
            Argument("group", help="group of what is extracted"),
        ),
        check,
        carry_out,
        validate=validate,
        resources=resources,
    ),
)
