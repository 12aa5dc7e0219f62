"""Choose the user that the embedded PostgreSQL runs as, and become that user: PostgreSQL refuses to run as root.

An ordinary user runs PostgreSQL as itself. Root enters a user namespace in which it is called `nobody`: to the kernel
the process is still root and reads what root owns, so no file changes its owner or mode; to PostgreSQL it is not root.
Where user namespaces are forbidden, root runs PostgreSQL as the real `nobody`, from a copy of the programs. Only the
keeper imports this module; it uses nothing but the standard library.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

CLONE_NEWUSER = 0x10000000
OVERFLOW_ID = 65534

_libc = ctypes.CDLL(None, use_errno=True)


class RunAs(Enum):
    """The ways to run PostgreSQL as a user that it accepts."""

    ITSELF = "itself"
    NAMESPACE = "a user namespace"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Account:
    """A uid and gid to change to."""

    uid: int
    gid: int


class WrongOwner(Exception):
    """The data directory belongs to another user."""


def nobody() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Account(OVERFLOW_ID, OVERFLOW_ID)
    return Account(entry.pw_uid, entry.pw_gid)


def choose_run_as(data: Path) -> RunAs:
    """Choose how PostgreSQL is run, before anything is started; `data` need not exist yet."""
    owner = data.stat().st_uid if data.exists() else None
    own_uid = os.geteuid()
    if own_uid == 0 and owner == nobody().uid:
        return RunAs.NOBODY  # made where namespaces were forbidden: it stays so, as its owner never changes twice
    if owner is not None and owner != own_uid:
        raise WrongOwner(
            f"{data} belongs to {_user_label(owner)}, but this is {_user_label(own_uid)}. "
            f"Run Rackwright as {_user_label(owner)}, or set RACKWRIGHT_HOME to another directory."
        )
    if own_uid != 0 and _is_known(own_uid):
        return RunAs.ITSELF
    if namespace_allowed():
        return RunAs.NAMESPACE
    # For a uid that no passwd file knows there is no other choice: PostgreSQL itself will say what it lacks.
    return RunAs.NOBODY if own_uid == 0 else RunAs.ITSELF


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _user_label(uid: int) -> str:
    return f"user {pwd.getpwuid(uid).pw_name}" if _is_known(uid) else f"uid {uid}"


def namespace_allowed() -> bool:
    """Return whether a user namespace can be entered. A child process tries it: if a namespace can be made but not
    mapped, a process cannot leave it again."""
    child = os.fork()
    if child == 0:
        try:
            enter_namespace()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def enter_namespace() -> None:
    """Become `nobody` in a user namespace that maps it to the user outside. The process must have one thread."""
    uid, gid = os.geteuid(), os.getegid()
    inner = nobody()
    if _libc.unshare(CLONE_NEWUSER) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # Without parent privileges a gid map is only accepted once setgroups is given up.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inner.uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{inner.gid} {gid} 1")


def change_owner(account: Account, directory: Path) -> None:
    """Give a directory and all in it to an account; of symbolic links the link itself, never its target."""
    if directory.stat().st_uid == account.uid:
        return
    for folder, _, files, descriptor in os.fwalk(directory):
        for name in files:
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
        if Path(folder) != directory:
            os.chown(folder, account.uid, account.gid)
    # The top comes last, because `choose_run_as` looks at its owner: if this is killed half way, it is done again.
    os.chown(directory, account.uid, account.gid)


def copy_program(program: Path, target: Path) -> Path:
    """Copy the programs, without headers and static libraries, to where every user may read them.

    Return the new `pginstall`.
    """
    package = program.parent
    ignored = shutil.ignore_patterns("include", "*.a", "pgxs", "pkgconfig", "doc", "man")
    copied = target / package.name / program.name
    shutil.copytree(program, copied, symlinks=True, ignore=ignored)
    libraries = package.with_name(f"{package.name}.libs")  # the binaries look for them at ../../../<package>.libs
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for folder, _, files, descriptor in os.fwalk(target):
        os.chmod(folder, 0o755)  # noqa: S103  # these are programs, which every user may read
        for name in files:
            if not os.path.islink(Path(folder, name)):
                mode = os.stat(name, dir_fd=descriptor).st_mode
                os.chmod(name, 0o755 if mode & 0o100 else 0o644, dir_fd=descriptor)
    return copied
