"""The state of a server's part in the datastore that is saved on disk, to be known again after a restart."""

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from rackwright.private_files import write_private_file

FILE = "datastore.json"


@dataclass(frozen=True)
class SavedState:
    """The saved state."""

    era: int = 0
    token: str = ""
    member: bool = False
    """Whether etcd's data here is that of a member, as far as this server knows."""
    member_id: int = 0
    alone: bool = False
    """Whether this server is to begin the datastore by itself: it founded the cluster or recovered it."""
    endpoints: tuple[str, ...] = ()


def load(folder: Path) -> SavedState:
    try:
        content = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return SavedState()
    return SavedState(**{**content, "endpoints": tuple(content.get("endpoints", ()))})


def save(folder: Path, state: SavedState) -> None:
    write_private_file(folder / FILE, json.dumps(asdict(state)).encode())


def mark_founder(folder: Path) -> None:
    """Mark a new cluster's first server as the one that begins its datastore."""
    save(folder, SavedState(1, secrets.token_hex(8), member=True, alone=True))
