"""/api/v2/networks, with their ranges, routers and allocations."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import tag
from rackwright.api.http.paging import Asked, page, parameters
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Key, Line
from rackwright.api.http.writing import Editing, Posting, Terms, write, write_graph
from rackwright.domain.errors import Invalid
from rackwright.domain.networks.networks import Category, Network, Range, Router, Use, parse_address, parse_subnet
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import read_root_id
from rackwright.store.machines.nodes import get_node
from rackwright.store.networks import allocations, networks
from rackwright.store.networks.allocations import ALLOCATIONS, AllocationRecord, select_allocations
from rackwright.store.networks.network_rows import (
    NETWORKS,
    NetworkRecord,
    find_network,
    lock_network,
    network_as_json,
    select_networks,
)

router = APIRouter(prefix="/networks", tags=["networks"])

ADDRESS = Field(max_length=60, examples=["10.0.0.10"])
NAME = Field(max_length=80, examples=["host"])
VLAN = Field(None, ge=-(2**31), le=2**31 - 1)


class RangeIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = NAME
    use: Use = Use.HOST
    first: str = ADDRESS
    last: str = ADDRESS

    def range(self, pointer: str = "") -> Range:
        return Range(
            self.name,
            self.use,
            parse_address(self.first, f"{pointer}/first"),
            parse_address(self.last, f"{pointer}/last"),
        )


class RangeEdit(BaseModel):
    """What people change of a range."""

    model_config = ConfigDict(extra="forbid")

    use: Use
    first: str = ADDRESS
    last: str = ADDRESS


class RouterIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    address: str = ADDRESS
    preference: int = Field(100, ge=0, le=65535)

    def router(self, pointer: str = "") -> Router:
        return Router(parse_address(self.address, f"{pointer}/address"), self.preference)


class NetworkIn(BaseModel):
    """A network to make. It has an IPv4 subnet, an IPv6 subnet, or both."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=80, examples=["admin"])
    category: Category = Category.GENERAL
    description: Line = ""
    vlan: int | None = VLAN
    v4_subnet: str | None = Field(None, max_length=60, examples=["10.0.0.0/24"])
    v6_subnet: str | None = Field(None, max_length=60, examples=["fd00:0:0:1::/64"])
    ranges: list[RangeIn] = Field(default_factory=list, max_length=64)
    routers: list[RouterIn] = Field(default_factory=list, max_length=16)

    def network(self) -> Network:
        return Network(
            self.name,
            self.category,
            self.description,
            self.vlan,
            _v4(self.v4_subnet),
            _v6(self.v6_subnet),
            tuple(one.range(f"/ranges/{place}") for place, one in enumerate(self.ranges)),
            tuple(one.router(f"/routers/{place}") for place, one in enumerate(self.routers)),
        )


class NetworkEdit(BaseModel):
    """What people change of a network itself; its ranges and routers have places of their own."""

    model_config = ConfigDict(extra="forbid")

    description: Line
    vlan: int | None = VLAN
    v4_subnet: str | None = Field(None, max_length=60, examples=["10.0.0.0/24"])
    v6_subnet: str | None = Field(None, max_length=60, examples=["fd00:0:0:1::/64"])


class RangeOut(BaseModel):
    name: str
    use: Use
    first: str
    last: str


class RouterOut(BaseModel):
    address: str
    preference: int


class NetworkOut(Resource):
    """A network, with its ranges and routers."""

    id: int
    name: str
    category: Category
    description: str
    vlan: int | None
    v4_subnet: str | None
    v6_subnet: str | None
    ranges: list[RangeOut]
    routers: list[RouterOut]

    @classmethod
    def of(cls, record: NetworkRecord) -> "NetworkOut":
        shown = network_as_json(record.network)
        return cls.model_validate({"etag": tag(record.id, shown), "id": record.id, **shown})


class AllocationIn(BaseModel):
    """An address for a node: a certain one, or the next free of each family."""

    model_config = ConfigDict(extra="forbid")

    node: str = Field(max_length=253)
    address: str | None = Field(None, max_length=60)


class AllocationOut(Resource):
    """An address that a node has on a network."""

    id: int
    network: str
    node: str
    address: str
    range: str | None
    bound: bool = Field(description="It goes with the node's noderole of the network, and not by hand.")

    @classmethod
    def of(cls, one: AllocationRecord) -> "AllocationOut":
        return cls(
            etag=tag(one.id, str(one.address), one.node_id),
            id=one.id,
            network=one.network,
            node=one.node,
            address=str(one.address),
            range=one.range,
            bound=one.node_role_id is not None,
        )


def _v4(text: str | None) -> IPv4Network | None:
    subnet = None if text is None else parse_subnet(text, 4, "/v4_subnet")
    assert subnet is None or isinstance(subnet, IPv4Network)
    return subnet


def _v6(text: str | None) -> IPv6Network | None:
    subnet = None if text is None else parse_subnet(text, 6, "/v6_subnet")
    assert subnet is None or isinstance(subnet, IPv6Network)
    return subnet


@router.get("", response_model=Page[NetworkOut])
async def list_networks(caller: ScopedReader, asked: Annotated[Asked, Depends(parameters(NETWORKS))]) -> Response:
    """All networks, or those that fit."""
    async with caller.read() as (session, visible):
        return await page(session, visible, asked, select_networks, NetworkOut, NetworkOut.of)


@router.post("", status_code=201, response_model=NetworkOut)
async def create_network(caller: Writer, terms: Posting, body: NetworkIn) -> Response:
    """Make a network, and the role network-<name> with it."""

    async def work(session: GraphSession) -> NetworkOut:
        await caller.authorize(session, await read_root_id(session))
        return NetworkOut.of(await networks.create_network(session, body.network()))

    return await write_graph(caller, terms, work, status=201, location=lambda _: f"/api/v2/networks/{body.name}")


@router.get("/{network}", response_model=NetworkOut)
async def get_network(caller: ScopedReader, network: Key, fields: Fields) -> Response:
    """One network."""
    async with caller.read() as (session, visible):
        return answer(NetworkOut.of(await find_network(session, network, visible)), fields=fields)


async def _locked(session: Session, caller: Caller, terms: Terms, key: str) -> NetworkRecord:
    """The network, which is everybody's: it takes the permission for the whole system."""
    await caller.authorize(session, await read_root_id(session))
    found = await lock_network(session, (await find_network(session, key, EVERYTHING)).name)
    terms.check(NetworkOut.of(found), f"network {found.name}")
    return found


@router.patch(
    "/{network}", response_model=NetworkOut, openapi_extra=patch_body(NetworkEdit, {"description": "All machines"})
)
async def update_network(caller: Writer, terms: Editing, network: Key, request: Request) -> Response:
    """Change its description, VLAN or subnets. Addresses that nodes have must still be in it."""
    patch = await read_patch(request)

    async def work(session: GraphSession) -> NetworkOut:
        found = await _locked(session, caller, terms, network)
        shown = network_as_json(found.network)
        edit = patch.apply(NetworkEdit.model_validate({name: shown[name] for name in NetworkEdit.model_fields}))
        changes = {**edit.model_dump(), "v4_subnet": _v4(edit.v4_subnet), "v6_subnet": _v6(edit.v6_subnet)}
        return NetworkOut.of(await networks.update_network(session, found.name, changes))

    return await write_graph(caller, terms, work)


@router.delete("/{network}", status_code=204)
async def delete_network(caller: Writer, terms: Editing, network: Key) -> Response:
    """Take a network out. Nobody may still have an address on it but the admin nodes."""

    async def work(session: GraphSession) -> None:
        await networks.delete_network(session, (await _locked(session, caller, terms, network)).name)

    return await write_graph(caller, terms, work)


# --- ranges and routers


@router.post("/{network}/ranges", status_code=201, response_model=NetworkOut)
async def add_range(caller: Writer, terms: Posting, network: Key, body: RangeIn) -> Response:
    """Add a range of addresses."""

    async def work(session: GraphSession) -> NetworkOut:
        found = await _locked(session, caller, terms, network)
        return NetworkOut.of(await networks.add_range(session, found.name, body.range()))

    return await write_graph(caller, terms, work, status=201, location=lambda _: f"/api/v2/networks/{network}")


@router.patch(
    "/{network}/ranges/{range}",
    response_model=NetworkOut,
    openapi_extra=patch_body(RangeEdit, {"last": "10.0.0.99"}),
)
async def update_range(caller: Writer, terms: Editing, network: Key, range: Key, request: Request) -> Response:
    """Make a range longer or shorter, or change who gets its addresses."""
    patch = await read_patch(request)

    async def work(session: GraphSession) -> NetworkOut:
        found = await _locked(session, caller, terms, network)
        old = networks.find_range(found, range)
        edit = patch.apply(RangeEdit(use=old.use, first=str(old.first), last=str(old.last)))
        changes: dict[str, Any] = {
            "use": edit.use,
            "first": parse_address(edit.first, "/first"),
            "last": parse_address(edit.last, "/last"),
        }
        return NetworkOut.of(await networks.change_range(session, found.name, range, changes))

    return await write_graph(caller, terms, work)


@router.delete("/{network}/ranges/{range}", response_model=NetworkOut)
async def delete_range(caller: Writer, terms: Editing, network: Key, range: Key) -> Response:
    """Nobody gets an address from it any more; those who have one keep it."""

    async def work(session: GraphSession) -> NetworkOut:
        found = await _locked(session, caller, terms, network)
        return NetworkOut.of(await networks.delete_range(session, found.name, range))

    return await write_graph(caller, terms, work)


@router.post("/{network}/routers", status_code=201, response_model=NetworkOut)
async def add_router(caller: Writer, terms: Posting, network: Key, body: RouterIn) -> Response:
    """Add a router."""

    async def work(session: GraphSession) -> NetworkOut:
        found = await _locked(session, caller, terms, network)
        return NetworkOut.of(await networks.add_router(session, found.name, body.router()))

    return await write_graph(caller, terms, work, status=201, location=lambda _: f"/api/v2/networks/{network}")


@router.delete("/{network}/routers/{address}", response_model=NetworkOut)
async def delete_router(caller: Writer, terms: Editing, network: Key, address: Key) -> Response:
    """Take a router out."""

    async def work(session: GraphSession) -> NetworkOut:
        found = await _locked(session, caller, terms, network)
        return NetworkOut.of(await networks.delete_router(session, found.name, str(parse_address(address))))

    return await write_graph(caller, terms, work)


# --- allocations


@router.get("/{network}/allocations", response_model=Page[AllocationOut])
async def list_allocations(
    caller: ScopedReader, network: Key, asked: Annotated[Asked, Depends(parameters(ALLOCATIONS))]
) -> Response:
    """Which node has which address."""
    async with caller.read() as (session, visible):
        id = (await find_network(session, network, visible)).id
        return await page(
            session,
            visible,
            asked,
            select_allocations,
            AllocationOut,
            AllocationOut.of,
            "a.network_id = :network_id",
            network_id=id,
        )


@router.post("/{network}/allocations", status_code=201, response_model=Page[AllocationOut])
async def allocate_address(caller: Writer, terms: Posting, network: Key, body: AllocationIn) -> Response:
    """Give a node an address without binding it to the network."""
    address = None if body.address is None else parse_address(body.address, "/address")

    async def work(session: Session) -> Page[AllocationOut]:
        node = await get_node(session, body.node, EVERYTHING)
        await caller.authorize(session, node.deployment_id)
        found = await find_network(session, network, EVERYTHING)
        given = await allocations.allocate_address(session, found.name, node.id, address)
        if not given:
            raise Invalid(f"Network {found.name!r} has no range for nodes; add one, or name an address.", "/address")
        return Page[AllocationOut](items=[AllocationOut.of(one) for one in given], next=None)

    return await write(caller, terms, work, status=201)


@router.delete("/{network}/allocations/{address}", status_code=204)
async def free_address(caller: Writer, terms: Editing, network: Key, address: Key) -> Response:
    """Take back an address that was given by hand."""
    parsed = parse_address(address)

    def check(found: AllocationRecord) -> None:
        terms.check(AllocationOut.of(found), f"who has {found.address}")

    async def work(session: Session) -> None:
        await caller.authorize(session, await read_root_id(session))
        await allocations.free_address(session, (await find_network(session, network, EVERYTHING)).name, parsed, check)

    return await write(caller, terms, work)
