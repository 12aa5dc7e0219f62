"""Where a server keeps its part of the mesh. Light, for commands that must start fast."""

import os
from pathlib import Path

FOLDER = Path("/var/lib/rackwright/mesh")


def default_folder() -> Path:
    return Path(os.environ.get("RACKWRIGHT_MESH_DIR", FOLDER))
