"""Other tools, measured beside ours in the same run; each in a throw-away environment of its own."""

import subprocess
import sys
from pathlib import Path

UV = Path(sys.executable).with_name("uv")


def environment(folder: Path, name: str, *packages: str) -> Path:
    """The python of an environment with these packages; made once and kept in `folder`."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([UV, "venv", "--quiet", folder / name], check=True)
        subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *packages], check=True)
    return python
