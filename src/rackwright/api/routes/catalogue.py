"""/api/v2/barclamps, /roles, /jigs and /hammers: what is imported, and which jigs take work."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import JsonMap, Key
from rackwright.api.http.writing import PostTerms, Terms, write_graph
from rackwright.store.catalogue import catalogue_views as views
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import read_root_id
from rackwright.store.hooks.hook_queue import set_jig_active

router = APIRouter()


class BarclampOut(Resource):
    """A package of roles."""

    id: int
    name: str = Field(examples=["provisioner"])
    display: str
    description: str
    version: str
    parent: str | None
    digest: str = Field(description="Of the files that it was imported with; empty: they are not in the database.")
    imported_at: datetime
    roles: list[str]
    jigs: list[str]

    @classmethod
    def of(cls, barclamp: views.BarclampRecord) -> "BarclampOut":
        return cls(etag=make_etag(barclamp.id, barclamp.digest), **asdict(barclamp))


class RoleOut(Resource):
    """What can be bound to a node."""

    id: int
    name: str = Field(examples=["provisioner-os-install"])
    barclamp: str
    jig: str
    description: str
    requires: list[str] = Field(description="Roles that must be there before it.")
    attaches: list[str] = Field(description="Roles that require it, by its own word.")
    wants: list[str] = Field(description="Attribs it takes from elsewhere.")
    provides: list[str] = Field(description="Roles it can stand in for.")
    conflicts: list[str] = Field(description="Roles that may not be on the same node.")
    flags: list[str] = Field(examples=[["destructive", "milestone"]])
    hooks: list[str]
    template: JsonMap = Field(description="Data it has by itself.")
    deadline: float | None = Field(description="Seconds a run may take.")
    attribs: list[str]

    @classmethod
    def of(cls, role: views.RoleRecord) -> "RoleOut":
        return cls(etag=make_etag(asdict(role)), **asdict(role))


class JigOut(Resource):
    """How the work of roles is done."""

    id: int
    name: str = Field(examples=["script"])
    barclamp: str
    kind: str
    description: str
    active: bool = Field(description="Whether it takes work.")
    client_role: str | None

    @classmethod
    def of(cls, jig: views.JigRecord) -> "JigOut":
        return cls(etag=make_etag(asdict(jig)), **asdict(jig))


class HammerOut(Resource):
    """A way to reach machines outside the graph: their power, their boot device."""

    id: int
    name: str
    barclamp: str
    kind: str = Field(examples=["redfish"])
    priority: int
    description: str

    @classmethod
    def of(cls, hammer: views.HammerRecord) -> "HammerOut":
        return cls(etag=make_etag(asdict(hammer)), **asdict(hammer))


@router.get("/barclamps", response_model=Page[BarclampOut], tags=["barclamps"])
async def list_barclamps(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(views.BARCLAMPS.listing))]
) -> Response:
    """All barclamps, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, views.BARCLAMPS.select, BarclampOut, BarclampOut.of)


@router.get("/barclamps/{barclamp}", response_model=BarclampOut, tags=["barclamps"])
async def get_barclamp(caller: ScopedReader, barclamp: Key, fields: Fields) -> Response:
    """One barclamp."""
    async with caller.read() as (session, visible):
        return answer(BarclampOut.of(await views.BARCLAMPS.read(session, barclamp, visible)), fields=fields)


@router.get("/roles", response_model=Page[RoleOut], tags=["roles"])
async def list_roles(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(views.ROLES.listing))]
) -> Response:
    """All roles, or those that fit. `flag=milestone` are those that people choose from."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, views.ROLES.select, RoleOut, RoleOut.of)


@router.get("/roles/{role}", response_model=RoleOut, tags=["roles"])
async def get_role(caller: ScopedReader, role: Key, fields: Fields) -> Response:
    """One role."""
    async with caller.read() as (session, visible):
        return answer(RoleOut.of(await views.ROLES.read(session, role, visible)), fields=fields)


@router.get("/hammers", response_model=Page[HammerOut], tags=["hammers"])
async def list_hammers(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(views.HAMMERS.listing))]
) -> Response:
    """All hammers, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, views.HAMMERS.select, HammerOut, HammerOut.of)


@router.get("/hammers/{hammer}", response_model=HammerOut, tags=["hammers"])
async def get_hammer(caller: ScopedReader, hammer: Key, fields: Fields) -> Response:
    """One hammer."""
    async with caller.read() as (session, visible):
        return answer(HammerOut.of(await views.HAMMERS.read(session, hammer, visible)), fields=fields)


@router.get("/jigs", response_model=Page[JigOut], tags=["jigs"])
async def list_jigs(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(views.JIGS.listing))]
) -> Response:
    """All jigs, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, views.JIGS.select, JigOut, JigOut.of)


@router.get("/jigs/{jig}", response_model=JigOut, tags=["jigs"])
async def get_jig(caller: ScopedReader, jig: Key, fields: Fields) -> Response:
    """One jig."""
    async with caller.read() as (session, visible):
        return answer(JigOut.of(await views.JIGS.read(session, jig, visible)), fields=fields)


async def _set_active(caller: Caller, terms: Terms, jig: str, active: bool) -> Response:
    async def work(session: GraphSession) -> JigOut:
        await caller.authorize(session, await read_root_id(session))
        record = await views.JIGS.read(session, jig, EVERYTHING)
        terms.check(JigOut.of(record), f"jig {record.name}")
        await set_jig_active(session, record.name, active)
        return JigOut.of(await views.JIGS.read(session, record.name, EVERYTHING))

    return await write_graph(caller, terms, work)


@router.post("/jigs/{jig}/activate", response_model=JigOut, tags=["jigs"])
async def activate_jig(caller: Writer, terms: PostTerms, jig: Key) -> Response:
    """Have a jig take work. It is told of all nodes that are there."""
    return await _set_active(caller, terms, jig, True)


@router.post("/jigs/{jig}/deactivate", response_model=JigOut, tags=["jigs"])
async def deactivate_jig(caller: Writer, terms: PostTerms, jig: Key) -> Response:
    """Have a jig take no more work. What runs goes on; what waits for it, waits."""
    return await _set_active(caller, terms, jig, False)
