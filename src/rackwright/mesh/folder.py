"""The folder in which a server keeps its part of the mesh. Imports little, for commands that must start fast."""

import os
from pathlib import Path

FOLDER = Path("/var/lib/rackwright/mesh")


def default_folder() -> Path:
    """Return the folder that the environment names, else the standard one."""
    return Path(os.environ.get("RACKWRIGHT_MESH_DIR", FOLDER))
