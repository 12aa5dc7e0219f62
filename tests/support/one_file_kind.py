"""A kind that comes as one file: put into a folder of its own, which is made part of the package for one process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_BEGIN = "import json, sys, {package}\n{package}.__path__.append(sys.argv[1])\n"


def told_by_a_process(package: str, folder: Path, program: str) -> Any:
    """What a process prints as JSON at the end of the program, in which the folder is part of the package."""
    command = [sys.executable, "-c", _BEGIN.format(package=package) + program, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
