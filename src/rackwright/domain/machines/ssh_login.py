"""How the server logs in to a node over SSH, as people say in its hint: user, port, and whose keys it lets in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.catalogue import Json, JsonObject

SSH = "ssh"
"""Where it lies in a hint. Only people say it: neither the machine nor a run may."""

ROOT = "root"
PORT = 22
MARK = "rackwright-authorized"
"""The last word of each line of authorized keys that is put and taken away by Rackwright."""

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Login:
    """The defaults are those that the attribs `ssh-user`, `ssh-port` and `ssh-authorized-keys` have."""

    user: str = ROOT
    port: int = PORT
    authorized_keys: tuple[str, ...] = ()


def login_of(hint: JsonObject) -> Login:
    """Return how a node is logged in to. What no attrib would allow counts as not said."""
    said = hint.get(SSH)
    if not isinstance(said, dict):
        return Login()
    return Login(_user(said.get("user")), _port(said.get("port")), _keys(said.get("authorized_keys")))


def _user(said: Json) -> str:
    return said if isinstance(said, str) and _USER.fullmatch(said) else ROOT


def _port(said: Json) -> int:
    if isinstance(said, int) and not isinstance(said, bool) and 1 <= said <= 65535:
        return said
    return PORT


def _keys(said: Json) -> tuple[str, ...]:
    keys = said if isinstance(said, list) else []
    return tuple(key for key in keys if isinstance(key, str) and key.isprintable())


def marked_lines(keys: Sequence[str]) -> list[str]:
    """Return the lines for a file of authorized keys, each marked, so that it can be taken away again."""
    return [f"{key} {MARK}" for key in dict.fromkeys(keys)]


def approval(place: str, port: int) -> str:
    """Return what an administrator approves who says that a machine is there: another port is another service."""
    return place if port == PORT else f"{place} port {port}"
