"""The home of Rackwright on this host: the folder with the embedded database, keys and images.

Only the path is decided here. Each module that stores something makes its own directory below the home. `short_folder`
is for files that cannot lie below the home, because their paths would be too long or too odd.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path


def default_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return `$RACKWRIGHT_HOME`, or else `rackwright` in the XDG data directory; always an absolute path."""
    variables = os.environ if environment is None else environment
    if home := variables.get("RACKWRIGHT_HOME"):
        return Path(home).expanduser().absolute()
    data_home = Path(variables.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():  # the XDG specification has relative paths ignored
        data_home = Path.home() / ".local" / "share"
    return data_home / "rackwright"


class FolderNotOurs(OSError):
    """Somebody else has a folder where ours would be"""


def short_folder(home: Path, root: Path = Path("/run")) -> Path:
    """Return a folder of this user alone with a short, plain path, always the same one for a home; make it if missing.

    Root's folder is in /run, where nobody else can make anything. Other users have it where temporary files go; if
    somebody else made a folder of that name there, it is not used: FolderNotOurs.
    """
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:16]
    parent = root if os.geteuid() == 0 and os.access(root, os.W_OK) else Path(tempfile.gettempdir())
    folder = parent / f"rackwright-{os.geteuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise FolderNotOurs(
            f"{folder} is not a folder of this user alone. Remove it, or choose a shorter, plainer home."
        )
    return folder
