"""Where Rackwright keeps what it stores on this host: the embedded database, keys, images.

Only the place is decided here. Whoever stores something makes its own directory below it. `short_folder` is for what
cannot lie below the home, because its path would be too long or too odd.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path


def default_home(environment: Mapping[str, str] | None = None) -> Path:
    """`$RACKWRIGHT_HOME`, or else `rackwright` in the XDG data directory; always absolute."""
    variables = os.environ if environment is None else environment
    if named := variables.get("RACKWRIGHT_HOME"):
        return Path(named).expanduser().absolute()
    data_home = Path(variables.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():  # the XDG specification has relative paths ignored
        data_home = Path.home() / ".local" / "share"
    return data_home / "rackwright"


class FolderNotOurs(OSError):
    """Somebody else has a folder where ours would be"""


def short_folder(home: Path, root: Path = Path("/run")) -> Path:
    """A folder of this user alone with a short, plain path, the same one for a home each time; made if it is missing.

    Root has it in /run, where nobody else can make anything. Others have it where temporary files go, and whatever
    somebody else put there under its name is not used.
    """
    mark = hashlib.sha256(str(home).encode()).hexdigest()[:16]
    parent = root if os.geteuid() == 0 and os.access(root, os.W_OK) else Path(tempfile.gettempdir())
    folder = parent / f"rackwright-{os.geteuid()}-{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise FolderNotOurs(
            f"{folder} is not a folder of this user alone. Remove it, or choose a shorter, plainer home."
        )
    return folder
