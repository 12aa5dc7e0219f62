"""The images that virtual machines boot and are installed with. Made once and kept below `build/`, and made again when
what makes them changes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackwright.lab.trial_images import cached_images

ROOT = Path(__file__).parents[2]
OS = "debian-12"


@pytest.fixture(scope="session")
def images() -> Path:
    return cached_images(ROOT / "build" / "lab", OS, lambda _: None).folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for the machines of a scenario: their disks, which nobody wants to keep, go with the test."""
    yield tmp_path / "run"
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
