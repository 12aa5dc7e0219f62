"""The SSH login of a node, as people set it in the node's hint: user, port, and the keys that are authorized."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.catalogue import Json, JsonObject

SSH = "ssh"
"""The key of the login in a hint. Only people may set it: neither the machine nor a run may."""

ROOT = "root"
PORT = 22
MARK = "rackwright-authorized"
"""The last word of each line of authorized keys that Rackwright adds and removes."""

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Login:
    """How the server logs in to a node.

    The defaults are those that the attribs `ssh-user`, `ssh-port` and `ssh-authorized-keys` have.
    """

    user: str = ROOT
    port: int = PORT
    authorized_keys: tuple[str, ...] = ()


def login_of(hint: JsonObject) -> Login:
    """Return the login of a node. A value that its attrib would not allow counts as not set."""
    login = hint.get(SSH)
    if not isinstance(login, dict):
        return Login()
    return Login(_user(login.get("user")), _port(login.get("port")), _keys(login.get("authorized_keys")))


def _user(value: Json) -> str:
    return value if isinstance(value, str) and _USER.fullmatch(value) else ROOT


def _port(value: Json) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
        return value
    return PORT


def _keys(value: Json) -> tuple[str, ...]:
    keys = value if isinstance(value, list) else []
    return tuple(key for key in keys if isinstance(key, str) and key.isprintable())


def marked_lines(keys: Sequence[str]) -> list[str]:
    """Return the lines for a file of authorized keys, each marked, so that it can be removed again."""
    return [f"{key} {MARK}" for key in dict.fromkeys(keys)]


def approval_text(address: str, port: int) -> str:
    """Return what an administrator approves who says that a machine is at an address.

    The port is part of it unless it is 22: another port is another service.
    """
    return address if port == PORT else f"{address} port {port}"
