"""/api/v2/images: what is on this server's shelf, how large it is, and which nodes use it."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from rackwright.api.context import ScopedReader
from rackwright.api.http.answers import answer_list
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.summary import summarize_images
from rackwright.store.graph.image_users import ImageUser, select_image_users

router = APIRouter(prefix="/images", tags=["images"])


class ImageUserOut(BaseModel):
    """A node that uses an image."""

    node: str
    use: str = Field(description="`installed`, `installing` or `planned`.", examples=["installed"])


class ImageOut(BaseModel):
    """An image on this server."""

    name: str = Field(examples=["debian-13"])
    size: int = Field(description="Bytes of its files.")
    own: int = Field(description="Bytes on the disk that no other image has: what deleting it frees.")
    shared: int = Field(description="Bytes on the disk that other images have too.")
    chunks: int = Field(description="Pieces of its root file system; 0: it has none.")
    about: dict[str, str] = Field(description="What it was made from and when, its kernel, and more, for people.")
    signed: bool = Field(description="There is a signature. Whether it has to hold is a setting.")
    problem: str | None = Field(description="Why machines cannot be installed with it; null: they can.")
    nodes: list[ImageUserOut] = Field(description="The nodes that use it, of those that you may see.")


def describe_images(shelf: Shelf, users: Mapping[str, list[ImageUser]]) -> list[ImageOut]:
    """Return what is known of all images of a shelf."""
    return [
        ImageOut.model_validate({**asdict(summary), "nodes": [asdict(user) for user in users.get(summary.name, [])]})
        for summary in summarize_images(shelf)
    ]


@router.get("", response_model=list[ImageOut])
async def list_images(caller: ScopedReader) -> Response:
    """The images on this server: what machines boot, and what is put on their disks."""
    async with caller.read() as (session, visible):
        users = await select_image_users(session, visible)
    return answer_list(await asyncio.to_thread(describe_images, caller.server.shelf, users))
