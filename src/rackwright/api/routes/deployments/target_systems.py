"""/api/v2/target_systems: the operating systems that machines can be given, and which of them are built already."""

import asyncio

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from rackwright.api.context import ScopedReader, Server
from rackwright.api.http.answers import answer_list
from rackwright.domain.architectures import SLEDGEHAMMERS
from rackwright.provision.images.shelf import ROOT_FILE
from rackwright.provision.images.systems import SYSTEMS

router = APIRouter(prefix="/target_systems", tags=["target_systems"])


class TargetSystemOut(BaseModel):
    """An operating system that can be chosen as `provisioner-target-os`."""

    name: str = Field(examples=["debian-12"])
    built: bool = Field(description="Its image is on this server, so machines can be installed with it now.")
    size: int | None = Field(description="Bytes of the image; null: not built.")
    problem: str | None = Field(description="Why its image must not be installed; null: there is none, or it may be.")
    recipe: bool = Field(description="This server can build it: `rackwright image build NAME`.")


def target_systems(server: Server) -> list[TargetSystemOut]:
    """Return all systems that can be built or are built."""
    images = {image.name: image for image in server.shelf.all() if ROOT_FILE in image.files}
    problems = {name: server.shelf.find_problem(name) for name in images}
    return [
        TargetSystemOut(
            name=name,
            built=name in images and problems[name] is None,
            size=images[name].files[ROOT_FILE].size if name in images else None,
            problem=problems.get(name),
            recipe=name in SYSTEMS,
        )
        for name in sorted({*SYSTEMS, *images} - SLEDGEHAMMERS.keys())
    ]


@router.get("", response_model=list[TargetSystemOut])
async def list_target_systems(caller: ScopedReader) -> Response:
    """The operating systems that machines can be given, with what is built already."""
    async with caller.read() as (_, visible):
        visible.mark_public()
    return answer_list(await asyncio.to_thread(target_systems, caller.server))
