"""Where a server is, and as whom it is spoken to."""

from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "/api/v2"
"""What the path of every call of the API begins with."""
TOKEN_FILE = "admin-token"  # noqa: S105  # the name of the file in which a server keeps its first token


@dataclass(frozen=True)
class Access:
    """The URL of a server, and the token that calls carry."""

    url: str
    token: str = field(default="", repr=False)
    """Empty: calls carry none."""
    ca: str | None = None
    """The file with the certificates to trust, where the server's own is not known to the system."""


def access_of_home(url: str, home: Path) -> Access:
    """Return the access to a server as its administrator, with the token that the server keeps in its home."""
    return Access(url, (home / TOKEN_FILE).read_text().strip())
