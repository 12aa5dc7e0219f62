"""Where Rackwright keeps what it stores on this host: the embedded database, keys, images.

Only the place is decided here. Whoever stores something makes its own directory below it.
"""

import os
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
