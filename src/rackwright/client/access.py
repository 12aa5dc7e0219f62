"""The access to a server: its URL, the token that calls carry, and the certificates to trust."""

from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "/api/v2"
"""The beginning of the path of every call of the API."""
TOKEN_FILE = "admin-token"  # noqa: S105  # the name of the file in which a server keeps its first token


@dataclass(frozen=True)
class Access:
    """The URL of a server, and the token that calls carry."""

    url: str
    token: str = field(default="", repr=False)
    """Empty: calls carry no token."""
    ca: str | None = None
    """The file with the certificates to trust, if the system does not know the server's own."""


def access_of_home(url: str, home: Path) -> Access:
    """Return the access to a server as its administrator, with the token that the server keeps in its home."""
    return Access(url, (home / TOKEN_FILE).read_text().strip())
