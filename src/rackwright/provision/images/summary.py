"""What people want to know of the images on a shelf: their size, what is in them, and what is wrong with them."""

from dataclasses import dataclass
from typing import Any

from rackwright.provision.images.manifest import Image
from rackwright.provision.images.shelf import ROOT_FILE, Shelf, own_and_shared


@dataclass(frozen=True)
class ImageSummary:
    """An image as people see it."""

    name: str
    size: int
    own: int
    """Bytes on the disk that no other image has."""
    shared: int
    chunks: int
    about: dict[str, str]
    signed: bool
    problem: str | None
    """Why machines cannot be installed with it; None: they can, or it is none that they are installed with."""


def summarize_images(shelf: Shelf) -> list[ImageSummary]:
    """Return what is known of all images of a shelf."""
    images = shelf.all()
    sizes = own_and_shared(images)
    return [_summarize(shelf, image, *sizes[image.name]) for image in images]


def list_files(image: Image) -> list[dict[str, Any]]:
    """Return the files of an image, for programs and people."""
    return [
        {"name": name, "size": file.size, "sha256": file.sha256, "chunks": len(file.chunks)}
        for name, file in sorted(image.files.items())
    ]


def _summarize(shelf: Shelf, image: Image, own: int, shared: int) -> ImageSummary:
    return ImageSummary(
        name=image.name,
        size=image.size,
        own=own,
        shared=shared,
        chunks=sum(len(file.chunks) for file in image.files.values()),
        about=dict(image.about),
        signed=image.signature is not None,
        problem=shelf.find_problem(image.name) if ROOT_FILE in image.files else None,
    )
