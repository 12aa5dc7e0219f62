"""Under whose name the embedded PostgreSQL runs, for PostgreSQL refuses to run as root.

An ordinary user runs it as itself. Root enters a user namespace in which it is called `nobody`: to the kernel it
is still root and reads what root owns, so no file changes its owner or mode; to PostgreSQL it is not root. Where user
namespaces are forbidden, root runs it as the real `nobody`, from a copy of the programs. Only the keeper imports
this; it has nothing but the standard library.
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


class Name(Enum):
    """How this process gets a name that PostgreSQL accepts."""

    ITSELF = "itself"
    NAMESPACE = "a user namespace"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Account:
    """A uid and gid to change to."""

    uid: int
    gid: int


class WrongOwner(Exception):
    """The data directory belongs to somebody else."""


def nobody() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Account(OVERFLOW_ID, OVERFLOW_ID)
    return Account(entry.pw_uid, entry.pw_gid)


def choose_name(data: Path) -> Name:
    """Decide before anything is started; `data` need not exist yet."""
    owner = data.stat().st_uid if data.exists() else None
    me = os.geteuid()
    if me == 0 and owner == nobody().uid:
        return Name.NOBODY  # it was made where namespaces were forbidden, and stays so: it never changes hands twice
    if owner is not None and owner != me:
        raise WrongOwner(
            f"{data} belongs to {_called(owner)}, but this is {_called(me)}. Run Rackwright as {_called(owner)}, or "
            f"set RACKWRIGHT_HOME to another directory."
        )
    if me != 0 and _is_known(me):
        return Name.ITSELF
    if namespace_allowed():
        return Name.NAMESPACE
    # A uid that no passwd file knows has no way out: PostgreSQL itself will say what it lacks.
    return Name.NOBODY if me == 0 else Name.ITSELF


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _called(uid: int) -> str:
    return f"user {pwd.getpwuid(uid).pw_name}" if _is_known(uid) else f"uid {uid}"


def namespace_allowed() -> bool:
    """Try it in a child: a namespace that could be made but not mapped cannot be left again."""
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
    """Become `nobody` in a user namespace that maps it to who we are outside. Needs a process of one thread."""
    uid, gid = os.geteuid(), os.getegid()
    inner = nobody()
    if _libc.unshare(CLONE_NEWUSER) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # Without parent privileges a gid map is only accepted once setgroups is given up.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inner.uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{inner.gid} {gid} 1")


def give_to(account: Account, directory: Path) -> None:
    """Hand a directory of ours and all in it over; symbolic links themselves, never what they point to."""
    if directory.stat().st_uid == account.uid:
        return
    for folder, _, files, descriptor in os.fwalk(directory):
        for name in files:
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
        if Path(folder) != directory:
            os.chown(folder, account.uid, account.gid)
    # Last, because `choose_name` goes by the owner of the top: killed half way, this is done again.
    os.chown(directory, account.uid, account.gid)


def copy_program(program: Path, target: Path) -> Path:
    """Copy what runs (not headers and static libraries) to where everybody may read it; returns the new `pginstall`."""
    package = program.parent
    left_out = shutil.ignore_patterns("include", "*.a", "pgxs", "pkgconfig", "doc", "man")
    copied = target / package.name / program.name
    shutil.copytree(program, copied, symlinks=True, ignore=left_out)
    libraries = package.with_name(f"{package.name}.libs")  # the binaries look for them at ../../../<package>.libs
    with contextlib.suppress(FileNotFoundError):
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for folder, _, files, descriptor in os.fwalk(target):
        os.chmod(folder, 0o755)  # noqa: S103  # these are programs: to be read by everybody is their purpose
        for name in files:
            if not os.path.islink(Path(folder, name)):
                mode = os.stat(name, dir_fd=descriptor).st_mode
                os.chmod(name, 0o755 if mode & 0o100 else 0o644, dir_fd=descriptor)
    return copied
