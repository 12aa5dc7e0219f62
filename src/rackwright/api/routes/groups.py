"""/api/v2/groups: nodes grouped by rack, room, owner or whatever people sort them by."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Key, Line, Name
from rackwright.api.http.writing import EditTerms, PostTerms, Terms, write
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
    def of(cls, group: GroupRecord) -> "GroupOut":
        return cls(
            etag=make_etag(group.id, group.category, group.name, group.description, group.nodes),
            id=group.id,
            category=group.category,
            name=group.name,
            description=group.description,
            nodes=group.nodes,
        )


@router.get("", response_model=Page[GroupOut])
async def list_groups(caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(GROUPS))]) -> Response:
    """All groups, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, partial(select_groups, visible=visible), GroupOut, GroupOut.of)


@router.post("", status_code=201, response_model=GroupOut)
async def create_group(caller: Writer, terms: PostTerms, body: GroupIn) -> Response:
    """A new group, empty."""

    async def work(session: Session) -> GroupOut:
        await caller.authorize(session, await read_root_id(session))
        return GroupOut.of(await stored.create_group(session, body.category, body.name, body.description))

    path = f"/api/v2/groups/{body.category}:{body.name}"
    return await write(caller, terms, work, status=201, location=lambda _: path)


@router.get("/{group}", response_model=GroupOut)
async def get_group(caller: ScopedReader, group: Key, fields: Fields) -> Response:
    """One group."""
    async with caller.read() as (session, visible):
        return answer(GroupOut.of(await stored.get_group(session, group, visible)), fields=fields)


async def _lock_and_check(session: Session, caller: Caller, terms: Terms, key: str) -> GroupRecord:
    """Return the group, locked. Refuse a caller who may not write everywhere, or who saw another version."""
    await caller.authorize(session, await read_root_id(session))
    record = await lock_group(session, key)
    terms.check(GroupOut.of(record), f"group {record.title}")
    return record


@router.patch("/{group}", response_model=GroupOut, openapi_extra=patch_body(GroupEdit, {"description": "By the door"}))
async def update_group(caller: Writer, terms: EditTerms, group: Key, request: Request) -> Response:
    """Change its description."""
    patch = await read_patch(request)

    async def work(session: Session) -> GroupOut:
        record = await _lock_and_check(session, caller, terms, group)
        edit = patch.apply(GroupEdit(description=record.description))
        return GroupOut.of(await stored.describe_group(session, record, edit.description))

    return await write(caller, terms, work)


@router.delete("/{group}", status_code=204)
async def delete_group(caller: Writer, terms: EditTerms, group: Key) -> Response:
    """Take a group away. Its nodes stay."""

    async def work(session: Session) -> None:
        await stored.delete_group(session, await _lock_and_check(session, caller, terms, group))

    return await write(caller, terms, work)


async def _group_out(session: Session, caller: Caller, group: GroupRecord) -> GroupOut:
    """Return the group as the caller would read it: with those of its nodes that the caller may see.

    A group of which the caller may see no node looks like an empty one.
    """
    visible = await caller.visibility(session)
    [record] = await stored.select_groups(session, "WHERE g.id = :id", visible, id=group.id)
    return GroupOut.of(record)


async def _check_terms(session: Session, caller: Caller, terms: Terms, group: GroupRecord) -> None:
    terms.check(await _group_out(session, caller, group), f"group {group.title}")


@router.put("/{group}/nodes/{node}", response_model=GroupOut)
async def add_group_node(caller: Writer, terms: EditTerms, group: Key, node: Key) -> Response:
    """Put a node into a group."""

    async def work(session: Session) -> GroupOut:
        member = await lock_node(session, node)
        await caller.authorize(session, member.deployment_id)
        record = await lock_group(session, group)
        await _check_terms(session, caller, terms, record)
        await stored.add_node(session, record, member)
        return await _group_out(session, caller, record)

    return await write(caller, terms, work)


@router.delete("/{group}/nodes/{node}", response_model=GroupOut)
async def remove_group_node(caller: Writer, terms: EditTerms, group: Key, node: Key) -> Response:
    """Take a node out of a group."""

    async def work(session: Session) -> GroupOut:
        member = await lock_node(session, node)
        await caller.authorize(session, member.deployment_id)
        record = await lock_group(session, group)
        await _check_terms(session, caller, terms, record)
        await stored.remove_node(session, record, member)
        return await _group_out(session, caller, record)

    return await write(caller, terms, work)
