"""Reads and changes the users and groups of this machine, or of a system below a folder (an image)."""

from __future__ import annotations

import grp
import pwd
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from .files import read_bytes
from .process import run


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    gid: int
    fullname: str
    home: str
    shell: str


@dataclass(frozen=True)
class Group:
    name: str
    gid: int
    members: Tuple[str, ...]


class Accounts:
    """The users and groups of a system.

    Without a root, those that the machine sees, network directories included; with one, those in the files below it.
    """

    def __init__(self, root: str = "") -> None:
        self.root = root.rstrip("/")

    def user(self, name: str) -> Optional[User]:
        if self.root:
            line = self._lines("passwd").get(name)
            if line is None:
                return None
            return User(name, int(line[2]), int(line[3]), line[4].split(",")[0], line[5], line[6])
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        return User(name, entry.pw_uid, entry.pw_gid, entry.pw_gecos.split(",")[0], entry.pw_dir, entry.pw_shell)

    def group(self, name: str) -> Optional[Group]:
        return next((group for group in self.groups() if group.name == name), None)

    def group_by_gid(self, gid: int) -> Optional[Group]:
        return next((group for group in self.groups() if group.gid == gid), None)

    def groups(self) -> List[Group]:
        if self.root:
            lines = self._lines("group")
            return [Group(name, int(line[2]), _members(line[3])) for name, line in lines.items()]
        return [Group(entry.gr_name, entry.gr_gid, tuple(entry.gr_mem)) for entry in grp.getgrall()]

    def password(self, name: str) -> Optional[str]:
        """Return the hash of a user's password; None if it cannot be read."""
        line = self._lines("shadow").get(name)
        return line[1] if line is not None and len(line) > 1 else None

    def _lines(self, file: str) -> Dict[str, List[str]]:
        text = (read_bytes(f"{self.root}/etc/{file}") or b"").decode("utf-8", "replace")
        fields = (line.split(":") for line in text.splitlines() if line and not line.startswith(("#", "+", "-")))
        return {line[0]: line for line in fields}

    def change(self, tool: str, arguments: List[str], name: str) -> None:
        """Run useradd, groupmod or a tool like them for one user or group."""
        prefix = ["--prefix", self.root] if self.root else []
        # 12: userdel could not remove the mail spool, which is not part of the request.
        run([tool, *prefix, *arguments, "--", name], f"{tool} {name}", good=(0, 12))

    def set_password(self, name: str, hashed: str) -> None:
        """Set the hash of a password, over standard input: a command line can be read by everybody."""
        root = ["--root", self.root] if self.root else []  # of these tools it alone knows no --prefix
        run(["chpasswd", *root, "--encrypted"], f"chpasswd {name}", stdin=f"{name}:{hashed}\n")


def _members(text: str) -> Tuple[str, ...]:
    return tuple(name for name in text.strip().split(",") if name)
