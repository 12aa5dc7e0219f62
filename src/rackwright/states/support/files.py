"""Reads and replaces files so that a kill at any moment leaves the old or the new file complete.

Also owners, modes and diffs. What a state *wants* of a file is decided in `modules/file`; this module only does it.
`write_whole` is the only file writer of the state engine. The other packages of Rackwright use
`rackwright/private_files.py`, which cannot be imported here: the engine travels alone to nodes with python3 >= 3.9. It
would not be enough either: it makes files of its own user in folders of that user, while `write_whole` replaces any
file of the system and keeps its owner and attributes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import grp
import io
import os
import pwd
import stat
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Union

from ..module import Context, StateError

DIFF_LIMIT = 1_000_000
"""Bytes; the diff of a larger file takes minutes, and people do not read it."""


def parse_mode(value: Any) -> Optional[int]:
    """Return a file mode as a number, from the digits a person writes ('0644', '644') or from a number."""
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        mode = int(str(value), 8)
    except ValueError:
        raise StateError(f"{value!r} is no file mode; write octal digits in quotes, for example '0644'") from None
    if mode > 0o7777:
        raise StateError(f"{value!r} is no file mode; the highest is '7777'")
    return mode


def show_mode(mode: int) -> str:
    return f"{mode:04o}"


@functools.lru_cache(maxsize=1)
def umask() -> int:
    """Return the umask without setting it: os.umask() is for the whole process, and other states run in its threads."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022


@dataclass(frozen=True)
class Owner:
    """The user, group and mode that a file should have; None leaves that part as it is."""

    user: Optional[str] = None
    group: Optional[str] = None
    mode: Optional[int] = None

    def ids(self) -> Tuple[int, int]:
        """Return uid and gid as os.chown takes them, -1 for "as it is"."""
        return user_id(self.user), group_id(self.group)


def user_id(user: Optional[str]) -> int:
    if user is None or user == "":
        return -1
    if user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise StateError(
            f"there is no user {user!r} on this machine; add a user.present state and require it"
        ) from None


def group_id(group: Optional[str]) -> int:
    if group is None or group == "":
        return -1
    if group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise StateError(
            f"there is no group {group!r} on this machine; add a group.present state and require it"
        ) from None


def owner_changes(path: str, found: Optional[os.stat_result], owner: Owner, context: Context) -> Dict[str, str]:
    """Return which of user, group and mode would change, in Salt's words: {"mode": "0600"}."""
    changes: Dict[str, str] = {}
    for attribute, desired, lookup, current in (
        ("user", owner.user, user_id, found.st_uid if found else None),
        ("group", owner.group, group_id, found.st_gid if found else None),
    ):
        if desired is None or desired == "":
            continue
        try:
            if lookup(desired) != current:
                changes[attribute] = desired
        except StateError:
            # In a dry run an earlier state would make this user; in a real run it has made it.
            if not context.test:
                raise
            changes[attribute] = desired
    is_link = found is not None and stat.S_ISLNK(found.st_mode)
    if owner.mode is not None and not is_link and (found is None or stat.S_IMODE(found.st_mode) != owner.mode):
        changes["mode"] = show_mode(owner.mode)
    return changes


def refuse_foreign_links(path: str, last: bool = False) -> None:
    """Refuse a path through a link that a user made to something that is not that user's; `last`: the end counts too.

    Otherwise a user could choose which file root writes, gives away or removes in a folder of that user.
    """
    reached, remaining, links_left = "/", path.split("/"), 40
    while remaining:
        name = remaining.pop(0)
        if name in ("", "."):
            continue
        reached = os.path.dirname(reached) if name == ".." else os.path.join(reached, name)
        link_status = status(reached) if remaining or last else None
        if link_status is None or not stat.S_ISLNK(link_status.st_mode):
            continue
        links_left -= 1
        if links_left < 0 or not _leads_to_own(reached, link_status.st_uid):
            raise StateError(
                f"{path} goes through {reached}, a link of user {link_status.st_uid} to what is not that user's;"
                " name the file itself"
            )
        target = os.readlink(reached)
        reached, remaining = (
            "/" if target.startswith("/") else os.path.dirname(reached),
            [*target.split("/"), *remaining],
        )


def _leads_to_own(link: str, user: int) -> bool:
    """Return whether a link is root's or ours, or its user owns the target or the folder it would be made in."""
    if user in (0, os.geteuid()):
        return True
    target = os.path.realpath(link)
    target_status = status(target) or status(os.path.dirname(target))
    return target_status is not None and target_status.st_uid == user


def set_owner(target: Union[str, int], owner: Owner) -> None:
    """Set owner, then mode: chown clears set-user-ID bits. A link at the end of a path is never followed."""
    uid, gid = owner.ids()
    if isinstance(target, str):
        refuse_foreign_links(target)
    try:
        if (uid, gid) != (-1, -1):
            os.chown(target, uid, gid, follow_symlinks=isinstance(target, int))
        if owner.mode is not None:
            _set_mode(target, owner.mode)
    except PermissionError as error:
        raise StateError(f"may not change owner or mode of {target}: {error.strerror}; run as root") from error


def _set_mode(target: Union[str, int], mode: int) -> None:
    """Set the mode of a descriptor, or of the file at a path now: a link that is put there meanwhile has no effect."""
    if isinstance(target, int):
        os.chmod(target, mode)
        return
    descriptor = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def status(path: str, follow: bool = False) -> Optional[os.stat_result]:
    """Return the status of a path; None if there is nothing at it."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise StateError(f"may not look at {path}: {error.strerror}") from error


def read_bytes(path: str) -> Optional[bytes]:
    """Return the content of a file; None if there is no file. A folder or device at the path is a StateError."""
    file_status = status(path, follow=True)
    if file_status is None:
        return None
    if not stat.S_ISREG(file_status.st_mode):
        raise StateError(f"{path} exists and is no regular file; remove it first (file.absent)")
    try:
        with open(path, "rb") as file:
            return file.read()
    except PermissionError as error:
        raise StateError(f"may not read {path}: {error.strerror}") from error


def write_whole(path: str, content: bytes, owner: Owner) -> None:
    """Replace `path` in one step: write a temporary file, set owner and mode, sync and rename.

    Owner and attributes that are not given stay as they were. The folder is not synced: if the power fails, the old
    file may be found, and the next run replaces it again.
    """
    refuse_foreign_links(path)
    before = status(path)
    if before is not None and stat.S_ISLNK(before.st_mode):
        raise StateError(f"{path} is a symbolic link; its target has to be named, not the link")
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise StateError(f"{path} exists and is no regular file; remove it first (file.absent)")
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:200]}.rackwright-new")
    try:
        descriptor = _open_temporary(temporary)
    except FileNotFoundError as error:
        folder = os.path.dirname(path)
        raise StateError(f"there is no folder {folder} to write {path} in; set makedirs: true or manage it") from error
    except (PermissionError, NotADirectoryError) as error:
        raise StateError(f"may not write in {os.path.dirname(path)}: {error.strerror}") from error
    try:
        _write_all(descriptor, content)
        if before is not None:
            _copy_attributes(path, descriptor)
            if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(descriptor, before.st_uid, before.st_gid)
            os.chmod(descriptor, stat.S_IMODE(before.st_mode))
        else:
            os.chmod(descriptor, 0o666 & ~umask())
        set_owner(descriptor, owner)
        os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError as error:
        _unlink_if_there(temporary)
        raise StateError(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        _unlink_if_there(temporary)
        raise
    finally:
        os.close(descriptor)


def _open_temporary(temporary: str) -> int:
    """Open the temporary file. It has one fixed name, so that the file of a killed run is found and reused by the next.

    The lock keeps two runs apart; the checks refuse a file that another user put there in a folder all may write.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            _unlink_if_there(temporary)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            opened, at_path = os.fstat(descriptor), status(temporary)
            if at_path is not None and (opened.st_ino, opened.st_dev) == (at_path.st_ino, at_path.st_dev):
                if opened.st_uid == os.geteuid() and opened.st_nlink == 1:
                    os.chmod(descriptor, 0o600)
                    os.ftruncate(descriptor, 0)
                    return descriptor
                _unlink_if_there(temporary)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _copy_attributes(source: str, descriptor: int) -> None:
    """Keep ACLs and security labels; a file system without them, or a label only the kernel may set, is no error."""
    try:
        for name in os.listxattr(source):
            os.setxattr(descriptor, name, os.getxattr(source, name))
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENODATA, errno.EINVAL):
            raise


def _unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def make_folder(path: str, owner: Owner) -> None:
    """Make a folder, or keep the one that is there, and set its owner."""
    refuse_foreign_links(path, last=True)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise StateError(f"{path} exists and is no folder; remove it first (file.absent)") from None
    except OSError as error:
        raise StateError(f"cannot make folder {path}: {error.strerror}") from error
    set_owner(path, owner)


def missing_parents(path: str) -> Tuple[str, ...]:
    """Return the folders above `path` that do not exist yet, outermost first."""
    missing = []
    parent = os.path.dirname(path)
    while parent and not os.path.lexists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    return tuple(reversed(missing))


def remove_all(path: str) -> None:
    """Remove a file, a link (not what it points to) or a folder with everything in it."""
    import shutil

    refuse_foreign_links(path)
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StateError(f"cannot remove {error.filename or path}: {error.strerror}") from error


def unified_diff(old: Optional[bytes], new: bytes, path: str) -> str:
    """Return a diff that `patch` would accept; for content that is no text, a line that says so."""
    if b"\0" in (old or b"") or b"\0" in new:
        return "New binary file" if old is None else "Replace binary file"
    if len(old or b"") + len(new) > DIFF_LIMIT:
        return f"Too large to show: {len(old or b'')} bytes become {len(new)}"
    import difflib  # a run that changes nothing never needs it

    lines = difflib.unified_diff(_lines(old or b""), _lines(new), "/dev/null" if old is None else path, path)
    text = "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
    return text or "New empty file"


def _lines(content: bytes) -> List[str]:
    """Return lines as editors and diff count them; str.splitlines() would also split at form feeds and the like."""
    return io.StringIO(content.decode("utf-8", "replace"), newline="\n").readlines()


def sha256(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()
