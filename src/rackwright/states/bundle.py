"""Builds the zipapp of the state engine: one file that a node with python3 >= 3.9 can run and that needs nothing else.

It holds this package and the pure Python of Jinja and PyYAML as they are installed here. The same installation gives
the same bytes, so the digest of the bytes is part of the file's name.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Tuple

from .support.files import Owner, write_whole

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_LIBRARIES = ("jinja2", "markupsafe", "yaml")
_NOT_FOR_NODES = ("states/bundle.py",)

_MAIN = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("the state engine needs python3 >= 3.9, this is " + sys.version.split()[0])
from rackwright.states.node import main
sys.exit(main())
"""


class Bundle(NamedTuple):
    """The zipapp's bytes and their digest."""

    content: bytes
    digest: str
    """sha256, in hex."""

    @property
    def name(self) -> str:
        return f"rackwright-states-{self.digest[:16]}.pyz"

    def write(self, folder: Path) -> Path:
        """Write the bundle into a folder under its own name, completely or not at all."""
        path = folder / self.name
        write_whole(str(path.absolute()), self.content, Owner(mode=0o700))
        return path


def build_bundle() -> Bundle:
    """Return the bundle of this installation."""
    files: Dict[str, bytes] = {"__main__.py": _MAIN.encode(), "rackwright/__init__.py": b""}
    package_folder = Path(__file__).parent
    for name, content in _read_sources(package_folder, "rackwright/states"):
        if not name.endswith(_NOT_FOR_NODES):
            files[name] = content
    for library in _LIBRARIES:
        spec = find_spec(library)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"{library} is not installed as a package, so it cannot go into the bundle")
        files.update(_read_sources(Path(spec.submodule_search_locations[0]), library))
    buffer = io.BytesIO()
    # Stored, not deflated: the output of zlib for the same bytes differs from one version of zlib to the next.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _FIXED_DATE)
            entry.external_attr = 0o600 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name])
    content = b"#!/usr/bin/env python3\n" + buffer.getvalue()
    return Bundle(content, hashlib.sha256(content).hexdigest())


def _read_sources(folder: Path, archive_folder: str) -> Iterator[Tuple[str, bytes]]:
    for path in sorted(folder.rglob("*.py")):
        yield f"{archive_folder}/{path.relative_to(folder).as_posix()}", path.read_bytes()
