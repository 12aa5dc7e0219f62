"""/api/v2/attribs, and the values of attribs under nodes, deployments and noderoles.

A value is read with where it comes from, and written with a check against the attrib's schema.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Id, JsonMap, Key
from rackwright.api.http.writing import EditTerms, Terms, write
from rackwright.domain.attributes import check_value
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid, NotFound
from rackwright.domain.sealed import MASK, masked
from rackwright.store.catalogue.catalogue_views import ATTRIBS, AttribRecord
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
    def of(cls, attrib: AttribRecord) -> "AttribOut":
        fields = {**asdict(attrib), "map": "/".join(attrib.map), "default": MASK if attrib.secret else attrib.default}
        return cls.model_validate({"etag": make_etag(asdict(attrib)), **fields})


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
    def of(cls, current: AttribValue) -> "AttribValueOut":
        return cls(
            etag=make_etag(current.attrib.name, current.role, current.layers),
            name=current.attrib.name,
            role=current.role,
            value=mask_value(current, current.value if current.has_value else None),
            source=current.source,
            layers=[LayerOut(source=source, value=mask_value(current, value)) for source, value in current.layers],
            writable=current.attrib.schema is not None,
            secret=current.attrib.secret,
            description=current.attrib.description,
        )


def mask_value(attrib_value: AttribValue, value: Json) -> Json:
    """Return a value of the attrib as people may see it: with secrets masked."""
    return MASK if attrib_value.attrib.secret and value is not None else masked(value)


class ValueIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: JsonValue = Field(examples=["debian-12"])


Values = Page[AttribValueOut]


def _list_response(values: list[AttribValue]) -> Response:
    return answer(Values(items=[AttribValueOut.of(value) for value in values], next=None))


# --- the attribs themselves


@router.get("/attribs", response_model=Page[AttribOut], tags=["attribs"])
async def list_attribs(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(ATTRIBS.listing))]
) -> Response:
    """All attribs, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, ATTRIBS.select, AttribOut, AttribOut.of)


@router.get("/attribs/{attrib}", response_model=AttribOut, tags=["attribs"])
async def get_attrib(caller: ScopedReader, attrib: Key, fields: Fields) -> Response:
    """One attrib."""
    async with caller.read() as (session, visible):
        return answer(AttribOut.of(await ATTRIBS.read(session, attrib, visible)), fields=fields)


# --- writing: every owner keeps what people want in one map, in which each attrib has its path

MapEdit = Callable[[JsonObject], JsonObject]
"""Returns the owner's map with the value of one attrib set or removed."""


def _set_value(attrib_value: AttribValue, value: Json) -> MapEdit:
    """Return the edit that sets an attrib, if the value fits its schema."""
    if not (attrib_value.attrib.secret and value == MASK):
        check_value(attrib_value.attrib, value)
    return lambda data: with_value(data, attrib_value.attrib, value)


def _unset_value(attrib_value: AttribValue) -> MapEdit:
    """Return the edit that removes what people want of an attrib."""
    if attrib_value.attrib.schema is None:
        raise Invalid(f"Attrib {attrib_value.attrib.name!r} has no schema, so it is read-only for people.")
    return lambda data: without_value(data, attrib_value.attrib)


MakeEdit = Callable[[AttribValue], MapEdit]
"""Returns the edit of an attrib that has this value now; refuses one that may not be made."""


async def _write(
    caller: Caller,
    terms: Terms,
    read_value: Callable[[Session], Awaitable[tuple[AttribValue, int]]],
    store_edit: Callable[[Session, MapEdit], Awaitable[None]],
    make_edit: MakeEdit,
) -> Response:
    """Edit the value of one attrib and answer with the value after it.

    `read_value` returns the value, with its owner locked, and the deployment it concerns; `store_edit` changes the
    owner's map.
    """

    async def work(session: Session) -> AttribValueOut:
        before, deployment_id = await read_value(session)
        await caller.authorize(session, deployment_id)
        terms.check(AttribValueOut.of(before), f"attrib {before.attrib.name}")
        try:
            await store_edit(session, make_edit(before))
        except Invalid as error:
            raise Invalid(error.message, f"/value{error.pointer}") from None
        return AttribValueOut.of((await read_value(session))[0])

    return await write(caller, terms, work)


# --- nodes


@router.get("/nodes/{node}/attribs", response_model=Values, tags=["nodes"])
async def list_node_attribs(caller: ScopedReader, node: Key) -> Response:
    """The attribs of a node, each with its value and where that comes from."""
    async with caller.read() as (session, visible):
        return _list_response(await values.read_node_attribs(session, await get_node(session, node, visible)))


@router.get("/nodes/{node}/attribs/{attrib}", response_model=AttribValueOut, tags=["nodes"])
async def get_node_attrib(caller: ScopedReader, node: Key, attrib: Key, fields: Fields) -> Response:
    """One attrib of a node."""
    async with caller.read() as (session, visible):
        record = await get_node(session, node, visible)
        value = find_attrib_value(await values.read_node_attribs(session, record), attrib, record.name)
        return answer(AttribValueOut.of(value), fields=fields)


async def _write_node_attrib(caller: Caller, terms: Terms, key: str, attrib: str, make_edit: MakeEdit) -> Response:
    async def read_value(session: Session) -> tuple[AttribValue, int]:
        node = await lock_node(session, key)
        return find_attrib_value(await values.read_node_attribs(session, node), attrib, node.name), node.deployment_id

    async def store_edit(session: Session, edit_map: MapEdit) -> None:
        node = await get_node(session, key, EVERYTHING)
        await set_hint(session, node, edit_map(node.hint), administrator=caller.is_administrator)

    return await _write(caller, terms, read_value, store_edit, make_edit)


@router.put("/nodes/{node}/attribs/{attrib}", response_model=AttribValueOut, tags=["nodes"])
async def set_node_attrib(caller: Writer, terms: EditTerms, node: Key, attrib: Key, body: ValueIn) -> Response:
    """Set a wish for a node: it wins over what the machine reports."""
    return await _write_node_attrib(caller, terms, node, attrib, lambda current: _set_value(current, body.value))


@router.delete("/nodes/{node}/attribs/{attrib}", response_model=AttribValueOut, tags=["nodes"])
async def unset_node_attrib(caller: Writer, terms: EditTerms, node: Key, attrib: Key) -> Response:
    """Take a wish back; answers with what the value is then."""
    return await _write_node_attrib(caller, terms, node, attrib, _unset_value)


# --- noderoles


@router.get("/node_roles/{id}/attribs", response_model=Values, tags=["node_roles"])
async def list_node_role_attribs(caller: ScopedReader, id: Id) -> Response:
    """The attribs a noderole answers for, each with its value and where that comes from."""
    async with caller.read() as (session, visible):
        return _list_response(
            await values.read_noderole_attribs(session, await get_noderole_view(session, id, visible))
        )


@router.get("/node_roles/{id}/attribs/{attrib}", response_model=AttribValueOut, tags=["node_roles"])
async def get_node_role_attrib(caller: ScopedReader, id: Id, attrib: Key, fields: Fields) -> Response:
    """One attrib of a noderole."""
    async with caller.read() as (session, visible):
        noderole = await get_noderole_view(session, id, visible)
        value = find_attrib_value(
            await values.read_noderole_attribs(session, noderole), attrib, f"{noderole.role} on {noderole.node}"
        )
        return answer(AttribValueOut.of(value), fields=fields)


async def _write_noderole_attrib(caller: Caller, terms: Terms, id: int, attrib: str, make_edit: MakeEdit) -> Response:
    async def read_value(session: Session) -> tuple[AttribValue, int]:
        await lock_deployment(session, (await get_noderole_view(session, id, EVERYTHING)).deployment_id)
        noderole = await get_noderole_view(session, id, EVERYTHING)
        title = f"{noderole.role} on {noderole.node}"
        return find_attrib_value(
            await values.read_noderole_attribs(session, noderole), attrib, title
        ), noderole.deployment_id

    async def store_edit(session: Session, edit_map: MapEdit) -> None:
        noderole = await get_noderole_view(session, id, EVERYTHING)
        deployment = await get_deployment(session, noderole.deployment_id, EVERYTHING)
        await snapshots.edit_binding_data(session, deployment, noderole, edit_map(noderole.user_data))

    return await _write(caller, terms, read_value, store_edit, make_edit)


@router.put("/node_roles/{id}/attribs/{attrib}", response_model=AttribValueOut, tags=["node_roles"])
async def set_node_role_attrib(caller: Writer, terms: EditTerms, id: Id, attrib: Key, body: ValueIn) -> Response:
    """Set what people want of this one noderole, in the open proposal."""
    return await _write_noderole_attrib(caller, terms, id, attrib, lambda current: _set_value(current, body.value))


@router.delete("/node_roles/{id}/attribs/{attrib}", response_model=AttribValueOut, tags=["node_roles"])
async def unset_node_role_attrib(caller: Writer, terms: EditTerms, id: Id, attrib: Key) -> Response:
    """Take it back, in the open proposal; answers with what the value is then."""
    return await _write_noderole_attrib(caller, terms, id, attrib, _unset_value)


# --- deployments


Role = Annotated[
    str | None,
    Query(max_length=63, description="Which role's, if several in the deployment answer for the attrib."),
]


@router.get("/deployments/{deployment}/attribs", response_model=Values, tags=["deployments"])
async def list_deployment_attribs(caller: ScopedReader, deployment: Key) -> Response:
    """The attribs of all roles in a deployment, each with its value and where that comes from."""
    async with caller.read() as (session, visible):
        record = await get_deployment(session, deployment, visible)
        return _list_response([value for _, value in await values.read_deployment_attribs(session, record.id)])


async def _find_deployment_attrib(
    session: Session, deployment_id: int, attrib: str, role: str | None
) -> tuple[deployment_roles.DeploymentRoleRecord, AttribValue]:
    """Return an attrib's value in a deployment, with the deployment-role that answers for it.

    That is the role that owns the attrib, else the first that provides the owner.
    """
    pairs = [
        pair for pair in await values.read_deployment_attribs(session, deployment_id) if pair[1].attrib.name == attrib
    ]
    if role is not None:
        pairs = [pair for pair in pairs if pair[0].role == role]
    if not pairs:
        raise NotFound("attrib of this deployment's roles:", attrib)
    return min(pairs, key=lambda pair: pair[0].role != pair[1].attrib.role)


@router.get("/deployments/{deployment}/attribs/{attrib}", response_model=AttribValueOut, tags=["deployments"])
async def get_deployment_attrib(
    caller: ScopedReader, deployment: Key, attrib: Key, fields: Fields, role: Role = None
) -> Response:
    """One attrib of a role in a deployment."""
    async with caller.read() as (session, visible):
        record = await get_deployment(session, deployment, visible)
        return answer(
            AttribValueOut.of((await _find_deployment_attrib(session, record.id, attrib, role))[1]), fields=fields
        )


async def _write_deployment_attrib(
    caller: Caller, terms: Terms, key: str, attrib: str, role: str | None, make_edit: MakeEdit
) -> Response:
    async def read_value(session: Session) -> tuple[AttribValue, int]:
        deployment = await lock_deployment(session, key)
        return (await _find_deployment_attrib(session, deployment.id, attrib, role))[1], deployment.id

    async def store_edit(session: Session, edit_map: MapEdit) -> None:
        deployment = await get_deployment(session, key, EVERYTHING)
        record, _ = await _find_deployment_attrib(session, deployment.id, attrib, role)
        await deployment_roles.edit_deployment_role_data(session, record, edit_map(record.data))

    return await _write(caller, terms, read_value, store_edit, make_edit)


@router.put("/deployments/{deployment}/attribs/{attrib}", response_model=AttribValueOut, tags=["deployments"])
async def set_deployment_attrib(
    caller: Writer, terms: EditTerms, deployment: Key, attrib: Key, body: ValueIn, role: Role = None
) -> Response:
    """Set what people want of a role in the whole deployment, in the open proposal. In the system deployment it is in
    force at once."""
    return await _write_deployment_attrib(
        caller, terms, deployment, attrib, role, lambda current: _set_value(current, body.value)
    )


@router.delete("/deployments/{deployment}/attribs/{attrib}", response_model=AttribValueOut, tags=["deployments"])
async def unset_deployment_attrib(
    caller: Writer, terms: EditTerms, deployment: Key, attrib: Key, role: Role = None
) -> Response:
    """Take it back; answers with what the value is then."""
    return await _write_deployment_attrib(caller, terms, deployment, attrib, role, _unset_value)
