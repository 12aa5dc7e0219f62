"""/api/v2/attribs, and their values under nodes, deployments and noderoles: read with where they come from, written
with a check against their schema."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import tag
from rackwright.api.http.paging import Asked, page, parameters
from rackwright.api.http.types import Id, JsonMap, Key
from rackwright.api.http.writing import Editing, Terms, write
from rackwright.domain.attributes import check_value
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid, NotFound
from rackwright.domain.sealed import MASK, masked
from rackwright.store.catalogue.catalogue_views import ATTRIBS, AttribRecord, select_attribs, view_attrib
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import attrib_values as values
from rackwright.store.graph import deployment_roles, snapshots
from rackwright.store.graph.attrib_values import AttribValue, find_attrib_value, with_value, without_value
from rackwright.store.graph.deployments import get_deployment, lock_deployment
from rackwright.store.graph.noderole_views import get_noderole_view
from rackwright.store.machines.node_changes import set_hint
from rackwright.store.machines.nodes import get_node, lock_node

router = APIRouter()


class AttribOut(Resource):
    """A named value that roles, nodes and people agree on."""

    id: int
    name: str = Field(examples=["target-os"])
    barclamp: str
    role: str | None = Field(description="The role that owns it; null: the node.")
    map: str = Field(description="Where it lies in the data of its owner.", examples=["crowbar/target_os"])
    description: str
    json_schema: JsonMap | None = Field(alias="schema", description="What it may be; null: people may not set it.")
    default: JsonValue
    has_default: bool
    secret: bool

    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

    @classmethod
    def of(cls, one: AttribRecord) -> "AttribOut":
        plain = {**asdict(one), "map": "/".join(one.map), "default": MASK if one.secret else one.default}
        return cls.model_validate({"etag": tag(asdict(one)), **plain})


class LayerOut(BaseModel):
    source: str
    value: JsonValue


class AttribValueOut(Resource):
    """What an attrib is, here, and why."""

    name: str
    role: str | None = Field(description="The role that answers for it; null: the node.")
    value: JsonValue = Field(description="Null if nothing says what it is, see `source`. Secrets are masked.")
    source: str | None = Field(
        description="Where the value comes from: the highest layer that says something. Null: there is none.",
        examples=["hint"],
    )
    layers: list[LayerOut] = Field(description="What each layer says, the lowest first: a later one wins.")
    writable: bool
    secret: bool
    description: str

    @classmethod
    def of(cls, one: AttribValue) -> "AttribValueOut":
        return cls(
            etag=tag(one.attrib.name, one.role, one.layers),
            name=one.attrib.name,
            role=one.role,
            value=shown_value(one, one.value if one.has_value else None),
            source=one.source,
            layers=[LayerOut(source=source, value=shown_value(one, value)) for source, value in one.layers],
            writable=one.attrib.schema is not None,
            secret=one.attrib.secret,
            description=one.attrib.description,
        )


def shown_value(one: AttribValue, value: Json) -> Json:
    return MASK if one.attrib.secret and value is not None else masked(value)


class ValueIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: JsonValue = Field(examples=["debian-12"])


Values = Page[AttribValueOut]


def _listed(found: list[AttribValue]) -> Response:
    return answer(Values(items=[AttribValueOut.of(one) for one in found], next=None))


# --- the attribs themselves


@router.get("/attribs", response_model=Page[AttribOut], tags=["attribs"])
async def list_attribs(caller: ScopedReader, asked: Annotated[Asked, Depends(parameters(ATTRIBS))]) -> Response:
    """All attribs, or those that fit."""
    async with caller.read() as (session, visible):
        return await page(session, visible, asked, select_attribs, AttribOut, AttribOut.of)


@router.get("/attribs/{attrib}", response_model=AttribOut, tags=["attribs"])
async def get_attrib(caller: ScopedReader, attrib: Key, fields: Fields) -> Response:
    """One attrib."""
    async with caller.read() as (session, visible):
        return answer(AttribOut.of(await view_attrib(session, attrib, visible)), fields=fields)


# --- writing: every owner keeps what people say in one map, in which the attrib has its place

Give = Callable[[JsonObject], JsonObject]


def _giving(one: AttribValue, value: Json) -> Give:
    if not (one.attrib.secret and value == MASK):
        check_value(one.attrib, value)
    return lambda said: with_value(said, one.attrib, value)


def _taking(one: AttribValue) -> Give:
    if one.attrib.schema is None:
        raise Invalid(f"Attrib {one.attrib.name!r} has no schema, so it is read-only for people.")
    return lambda said: without_value(said, one.attrib)


Change = Callable[[AttribValue], Give]


async def _write(
    caller: Caller,
    terms: Terms,
    read: Callable[[Session], Awaitable[tuple[AttribValue, int]]],
    store: Callable[[Session, Give], Awaitable[None]],
    change: Change,
) -> Response:
    """`read` gives the value, locked, and the deployment it concerns; `store` changes what people said there."""

    async def work(session: Session) -> AttribValueOut:
        before, deployment_id = await read(session)
        await caller.authorize(session, deployment_id)
        terms.check(AttribValueOut.of(before), f"attrib {before.attrib.name}")
        try:
            await store(session, change(before))
        except Invalid as wrong:
            raise Invalid(wrong.message, f"/value{wrong.pointer}") from None
        return AttribValueOut.of((await read(session))[0])

    return await write(caller, terms, work)


# --- nodes


@router.get("/nodes/{node}/attribs", response_model=Values, tags=["nodes"])
async def list_node_attribs(caller: ScopedReader, node: Key) -> Response:
    """The attribs of a node, each with its value and where that comes from."""
    async with caller.read() as (session, visible):
        return _listed(await values.read_node_attribs(session, await get_node(session, node, visible)))


@router.get("/nodes/{node}/attribs/{attrib}", response_model=AttribValueOut, tags=["nodes"])
async def get_node_attrib(caller: ScopedReader, node: Key, attrib: Key, fields: Fields) -> Response:
    """One attrib of a node."""
    async with caller.read() as (session, visible):
        found = await get_node(session, node, visible)
        one = find_attrib_value(await values.read_node_attribs(session, found), attrib, found.name)
        return answer(AttribValueOut.of(one), fields=fields)


async def _write_node(caller: Caller, terms: Terms, key: str, attrib: str, change: Change) -> Response:
    async def read(session: Session) -> tuple[AttribValue, int]:
        node = await lock_node(session, key)
        return find_attrib_value(await values.read_node_attribs(session, node), attrib, node.name), node.deployment_id

    async def store(session: Session, give: Give) -> None:
        node = await get_node(session, key, EVERYTHING)
        await set_hint(session, node, give(node.hint), administrator=caller.is_administrator)

    return await _write(caller, terms, read, store, change)


@router.put("/nodes/{node}/attribs/{attrib}", response_model=AttribValueOut, tags=["nodes"])
async def set_node_attrib(caller: Writer, terms: Editing, node: Key, attrib: Key, body: ValueIn) -> Response:
    """Set a wish for a node: it wins over what the machine reports."""
    return await _write_node(caller, terms, node, attrib, lambda one: _giving(one, body.value))


@router.delete("/nodes/{node}/attribs/{attrib}", response_model=AttribValueOut, tags=["nodes"])
async def unset_node_attrib(caller: Writer, terms: Editing, node: Key, attrib: Key) -> Response:
    """Take a wish back; answers with what the value is then."""
    return await _write_node(caller, terms, node, attrib, _taking)


# --- noderoles


@router.get("/node_roles/{id}/attribs", response_model=Values, tags=["node_roles"])
async def list_node_role_attribs(caller: ScopedReader, id: Id) -> Response:
    """The attribs a noderole answers for, each with its value and where that comes from."""
    async with caller.read() as (session, visible):
        return _listed(await values.read_noderole_attribs(session, await get_noderole_view(session, id, visible)))


@router.get("/node_roles/{id}/attribs/{attrib}", response_model=AttribValueOut, tags=["node_roles"])
async def get_node_role_attrib(caller: ScopedReader, id: Id, attrib: Key, fields: Fields) -> Response:
    """One attrib of a noderole."""
    async with caller.read() as (session, visible):
        found = await get_noderole_view(session, id, visible)
        one = find_attrib_value(
            await values.read_noderole_attribs(session, found), attrib, f"{found.role} on {found.node}"
        )
        return answer(AttribValueOut.of(one), fields=fields)


async def _write_noderole(caller: Caller, terms: Terms, id: int, attrib: str, change: Change) -> Response:
    async def read(session: Session) -> tuple[AttribValue, int]:
        await lock_deployment(session, (await get_noderole_view(session, id, EVERYTHING)).deployment_id)
        found = await get_noderole_view(session, id, EVERYTHING)
        where = f"{found.role} on {found.node}"
        return find_attrib_value(await values.read_noderole_attribs(session, found), attrib, where), found.deployment_id

    async def store(session: Session, give: Give) -> None:
        found = await get_noderole_view(session, id, EVERYTHING)
        deployment = await get_deployment(session, found.deployment_id, EVERYTHING)
        await snapshots.edit_binding_data(session, deployment, found, give(found.user_data))

    return await _write(caller, terms, read, store, change)


@router.put("/node_roles/{id}/attribs/{attrib}", response_model=AttribValueOut, tags=["node_roles"])
async def set_node_role_attrib(caller: Writer, terms: Editing, id: Id, attrib: Key, body: ValueIn) -> Response:
    """Set what people want of this one noderole, in the open proposal."""
    return await _write_noderole(caller, terms, id, attrib, lambda one: _giving(one, body.value))


@router.delete("/node_roles/{id}/attribs/{attrib}", response_model=AttribValueOut, tags=["node_roles"])
async def unset_node_role_attrib(caller: Writer, terms: Editing, id: Id, attrib: Key) -> Response:
    """Take it back, in the open proposal; answers with what the value is then."""
    return await _write_noderole(caller, terms, id, attrib, _taking)


# --- deployments


Role = Annotated[
    str | None,
    Query(max_length=63, description="Which role's, if several in the deployment answer for the attrib."),
]


@router.get("/deployments/{deployment}/attribs", response_model=Values, tags=["deployments"])
async def list_deployment_attribs(caller: ScopedReader, deployment: Key) -> Response:
    """The attribs of all roles in a deployment, each with its value and where that comes from."""
    async with caller.read() as (session, visible):
        found = await get_deployment(session, deployment, visible)
        return _listed([value for _, value in await values.read_deployment_attribs(session, found.id)])


async def _of_deployment(
    session: Session, deployment_id: int, attrib: str, role: str | None
) -> tuple[deployment_roles.DeploymentRoleRecord, AttribValue]:
    """The owner's, else that of the first role that provides the owner."""
    found = [
        pair for pair in await values.read_deployment_attribs(session, deployment_id) if pair[1].attrib.name == attrib
    ]
    if role is not None:
        found = [pair for pair in found if pair[0].role == role]
    if not found:
        raise NotFound("attrib of this deployment's roles:", attrib)
    return min(found, key=lambda pair: pair[0].role != pair[1].attrib.role)


@router.get("/deployments/{deployment}/attribs/{attrib}", response_model=AttribValueOut, tags=["deployments"])
async def get_deployment_attrib(
    caller: ScopedReader, deployment: Key, attrib: Key, fields: Fields, role: Role = None
) -> Response:
    """One attrib of a role in a deployment."""
    async with caller.read() as (session, visible):
        found = await get_deployment(session, deployment, visible)
        return answer(AttribValueOut.of((await _of_deployment(session, found.id, attrib, role))[1]), fields=fields)


async def _write_deployment(
    caller: Caller, terms: Terms, key: str, attrib: str, role: str | None, change: Change
) -> Response:
    async def read(session: Session) -> tuple[AttribValue, int]:
        deployment = await lock_deployment(session, key)
        return (await _of_deployment(session, deployment.id, attrib, role))[1], deployment.id

    async def store(session: Session, give: Give) -> None:
        deployment = await get_deployment(session, key, EVERYTHING)
        record, _ = await _of_deployment(session, deployment.id, attrib, role)
        await deployment_roles.edit_deployment_role_data(session, record, give(record.data))

    return await _write(caller, terms, read, store, change)


@router.put("/deployments/{deployment}/attribs/{attrib}", response_model=AttribValueOut, tags=["deployments"])
async def set_deployment_attrib(
    caller: Writer, terms: Editing, deployment: Key, attrib: Key, body: ValueIn, role: Role = None
) -> Response:
    """Set what people want of a role in the whole deployment, in the open proposal. In the system deployment it is in
    force at once."""
    return await _write_deployment(caller, terms, deployment, attrib, role, lambda one: _giving(one, body.value))


@router.delete("/deployments/{deployment}/attribs/{attrib}", response_model=AttribValueOut, tags=["deployments"])
async def unset_deployment_attrib(
    caller: Writer, terms: Editing, deployment: Key, attrib: Key, role: Role = None
) -> Response:
    """Take it back; answers with what the value is then."""
    return await _write_deployment(caller, terms, deployment, attrib, role, _taking)
