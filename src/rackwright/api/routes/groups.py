"""/api/v2/groups: nodes by rack, room, owner or whatever people sort them by."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import tag
from rackwright.api.http.paging import Asked, page, parameters
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Key, Line, Name
from rackwright.api.http.writing import Editing, Posting, Terms, write
from rackwright.store.db.session import Session
from rackwright.store.graph.deployments import read_root_id
from rackwright.store.machines import groups as stored
from rackwright.store.machines.groups import GROUPS, GroupRecord, lock_group, select_groups
from rackwright.store.machines.nodes import lock_node

router = APIRouter(prefix="/groups", tags=["groups"])


class GroupIn(BaseModel):
    """A group to make. It is addressed as category:name."""

    model_config = ConfigDict(extra="forbid")

    category: Name = Field(examples=["rack"])
    name: Name = Field(examples=["r1"])
    description: Line = ""


class GroupEdit(BaseModel):
    """What people change of a group itself."""

    model_config = ConfigDict(extra="forbid")

    description: Line


class GroupOut(Resource):
    """Some nodes under one name."""

    id: int
    category: str = Field(examples=["rack"])
    name: str = Field(examples=["r1"])
    description: str
    nodes: list[str]

    @classmethod
    def of(cls, one: GroupRecord) -> "GroupOut":
        return cls(
            etag=tag(one.id, one.category, one.name, one.description, one.nodes),
            id=one.id,
            category=one.category,
            name=one.name,
            description=one.description,
            nodes=one.nodes,
        )


@router.get("", response_model=Page[GroupOut])
async def list_groups(caller: ScopedReader, asked: Annotated[Asked, Depends(parameters(GROUPS))]) -> Response:
    """All groups, or those that fit."""
    async with caller.read() as (session, visible):
        return await page(session, visible, asked, partial(select_groups, visible=visible), GroupOut, GroupOut.of)


@router.post("", status_code=201, response_model=GroupOut)
async def create_group(caller: Writer, terms: Posting, body: GroupIn) -> Response:
    """A new group, empty."""

    async def work(session: Session) -> GroupOut:
        await caller.authorize(session, await read_root_id(session))
        return GroupOut.of(await stored.create_group(session, body.category, body.name, body.description))

    place = f"/api/v2/groups/{body.category}:{body.name}"
    return await write(caller, terms, work, status=201, location=lambda _: place)


@router.get("/{group}", response_model=GroupOut)
async def get_group(caller: ScopedReader, group: Key, fields: Fields) -> Response:
    """One group."""
    async with caller.read() as (session, visible):
        return answer(GroupOut.of(await stored.get_group(session, group, visible)), fields=fields)


async def _locked(session: Session, caller: Caller, terms: Terms, key: str) -> GroupRecord:
    await caller.authorize(session, await read_root_id(session))
    found = await lock_group(session, key)
    terms.check(GroupOut.of(found), f"group {found.title}")
    return found


@router.patch("/{group}", response_model=GroupOut, openapi_extra=patch_body(GroupEdit, {"description": "By the door"}))
async def update_group(caller: Writer, terms: Editing, group: Key, request: Request) -> Response:
    """Change its description."""
    patch = await read_patch(request)

    async def work(session: Session) -> GroupOut:
        found = await _locked(session, caller, terms, group)
        wanted = patch.apply(GroupEdit(description=found.description))
        return GroupOut.of(await stored.describe_group(session, found, wanted.description))

    return await write(caller, terms, work)


@router.delete("/{group}", status_code=204)
async def delete_group(caller: Writer, terms: Editing, group: Key) -> Response:
    """Take a group away. Its nodes stay."""

    async def work(session: Session) -> None:
        await stored.delete_group(session, await _locked(session, caller, terms, group))

    return await write(caller, terms, work)


async def _shown(session: Session, caller: Caller, group: GroupRecord) -> GroupOut:
    """As the caller would read it: with those of its nodes that he may see. One that has none is not told apart."""
    visible = await caller.visibility(session)
    [found] = await stored.select_groups(session, "WHERE g.id = :id", visible, id=group.id)
    return GroupOut.of(found)


async def _check(session: Session, caller: Caller, terms: Terms, group: GroupRecord) -> None:
    terms.check(await _shown(session, caller, group), f"group {group.title}")


@router.put("/{group}/nodes/{node}", response_model=GroupOut)
async def add_group_node(caller: Writer, terms: Editing, group: Key, node: Key) -> Response:
    """Put a node into a group."""

    async def work(session: Session) -> GroupOut:
        member = await lock_node(session, node)
        await caller.authorize(session, member.deployment_id)
        found = await lock_group(session, group)
        await _check(session, caller, terms, found)
        await stored.add_node(session, found, member)
        return await _shown(session, caller, found)

    return await write(caller, terms, work)


@router.delete("/{group}/nodes/{node}", response_model=GroupOut)
async def remove_group_node(caller: Writer, terms: Editing, group: Key, node: Key) -> Response:
    """Take a node out of a group."""

    async def work(session: Session) -> GroupOut:
        member = await lock_node(session, node)
        await caller.authorize(session, member.deployment_id)
        found = await lock_group(session, group)
        await _check(session, caller, terms, found)
        await stored.remove_node(session, found, member)
        return await _shown(session, caller, found)

    return await write(caller, terms, work)
