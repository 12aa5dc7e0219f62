"""Fixtures with folders for the tests of the store."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="rackwright-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
