"""/api/v2/networks: networks with their ranges and routers, and the addresses that nodes have on them."""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Key, Line
from rackwright.api.http.writing import EditTerms, PostTerms, Terms, write, write_graph
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
            _parse_v4(self.v4_subnet),
            _parse_v6(self.v6_subnet),
            tuple(range_in.range(f"/ranges/{index}") for index, range_in in enumerate(self.ranges)),
            tuple(router_in.router(f"/routers/{index}") for index, router_in in enumerate(self.routers)),
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
        fields = network_as_json(record.network)
        return cls.model_validate({"etag": make_etag(record.id, fields), "id": record.id, **fields})


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
    def of(cls, allocation: AllocationRecord) -> "AllocationOut":
        return cls(
            etag=make_etag(allocation.id, str(allocation.address), allocation.node_id),
            id=allocation.id,
            network=allocation.network,
            node=allocation.node,
            address=str(allocation.address),
            range=allocation.range,
            bound=allocation.node_role_id is not None,
        )


def _parse_v4(text: str | None) -> IPv4Network | None:
    subnet = None if text is None else parse_subnet(text, 4, "/v4_subnet")
    assert subnet is None or isinstance(subnet, IPv4Network)
    return subnet


def _parse_v6(text: str | None) -> IPv6Network | None:
    subnet = None if text is None else parse_subnet(text, 6, "/v6_subnet")
    assert subnet is None or isinstance(subnet, IPv6Network)
    return subnet


@router.get("", response_model=Page[NetworkOut])
async def list_networks(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(NETWORKS))]
) -> Response:
    """All networks, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, select_networks, NetworkOut, NetworkOut.of)


@router.post("", status_code=201, response_model=NetworkOut)
async def create_network(caller: Writer, terms: PostTerms, body: NetworkIn) -> Response:
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


async def _lock_and_check(session: Session, caller: Caller, terms: Terms, key: str) -> NetworkRecord:
    """Return the network, locked. Refuse a caller who saw another version, or may not write everywhere.

    A network is everybody's, so changing it takes the permission for the whole system.
    """
    await caller.authorize(session, await read_root_id(session))
    record = await lock_network(session, (await find_network(session, key, EVERYTHING)).name)
    terms.check(NetworkOut.of(record), f"network {record.name}")
    return record


@router.patch(
    "/{network}", response_model=NetworkOut, openapi_extra=patch_body(NetworkEdit, {"description": "All machines"})
)
async def update_network(caller: Writer, terms: EditTerms, network: Key, request: Request) -> Response:
    """Change its description, VLAN or subnets. Addresses that nodes have must still be in it."""
    patch = await read_patch(request)

    async def work(session: GraphSession) -> NetworkOut:
        record = await _lock_and_check(session, caller, terms, network)
        fields = network_as_json(record.network)
        edit = patch.apply(NetworkEdit.model_validate({name: fields[name] for name in NetworkEdit.model_fields}))
        changes = {**edit.model_dump(), "v4_subnet": _parse_v4(edit.v4_subnet), "v6_subnet": _parse_v6(edit.v6_subnet)}
        return NetworkOut.of(await networks.update_network(session, record.name, changes))

    return await write_graph(caller, terms, work)


@router.delete("/{network}", status_code=204)
async def delete_network(caller: Writer, terms: EditTerms, network: Key) -> Response:
    """Take a network out. Nobody may still have an address on it but the admin nodes."""

    async def work(session: GraphSession) -> None:
        await networks.delete_network(session, (await _lock_and_check(session, caller, terms, network)).name)

    return await write_graph(caller, terms, work)


# --- ranges and routers


@router.post("/{network}/ranges", status_code=201, response_model=NetworkOut)
async def add_range(caller: Writer, terms: PostTerms, network: Key, body: RangeIn) -> Response:
    """Add a range of addresses."""

    async def work(session: GraphSession) -> NetworkOut:
        record = await _lock_and_check(session, caller, terms, network)
        return NetworkOut.of(await networks.add_range(session, record.name, body.range()))

    return await write_graph(caller, terms, work, status=201, location=lambda _: f"/api/v2/networks/{network}")


@router.patch(
    "/{network}/ranges/{range}",
    response_model=NetworkOut,
    openapi_extra=patch_body(RangeEdit, {"last": "10.0.0.99"}),
)
async def update_range(caller: Writer, terms: EditTerms, network: Key, range: Key, request: Request) -> Response:
    """Make a range longer or shorter, or change who gets its addresses."""
    patch = await read_patch(request)

    async def work(session: GraphSession) -> NetworkOut:
        record = await _lock_and_check(session, caller, terms, network)
        current = networks.find_range(record, range)
        edit = patch.apply(RangeEdit(use=current.use, first=str(current.first), last=str(current.last)))
        changes: dict[str, Any] = {
            "use": edit.use,
            "first": parse_address(edit.first, "/first"),
            "last": parse_address(edit.last, "/last"),
        }
        return NetworkOut.of(await networks.change_range(session, record.name, range, changes))

    return await write_graph(caller, terms, work)


@router.delete("/{network}/ranges/{range}", response_model=NetworkOut)
async def delete_range(caller: Writer, terms: EditTerms, network: Key, range: Key) -> Response:
    """Nobody gets an address from it any more; those who have one keep it."""

    async def work(session: GraphSession) -> NetworkOut:
        record = await _lock_and_check(session, caller, terms, network)
        return NetworkOut.of(await networks.delete_range(session, record.name, range))

    return await write_graph(caller, terms, work)


@router.post("/{network}/routers", status_code=201, response_model=NetworkOut)
async def add_router(caller: Writer, terms: PostTerms, network: Key, body: RouterIn) -> Response:
    """Add a router."""

    async def work(session: GraphSession) -> NetworkOut:
        record = await _lock_and_check(session, caller, terms, network)
        return NetworkOut.of(await networks.add_router(session, record.name, body.router()))

    return await write_graph(caller, terms, work, status=201, location=lambda _: f"/api/v2/networks/{network}")


@router.delete("/{network}/routers/{address}", response_model=NetworkOut)
async def delete_router(caller: Writer, terms: EditTerms, network: Key, address: Key) -> Response:
    """Take a router out."""

    async def work(session: GraphSession) -> NetworkOut:
        record = await _lock_and_check(session, caller, terms, network)
        return NetworkOut.of(await networks.delete_router(session, record.name, str(parse_address(address))))

    return await write_graph(caller, terms, work)


# --- allocations


@router.get("/{network}/allocations", response_model=Page[AllocationOut])
async def list_allocations(
    caller: ScopedReader, network: Key, query: Annotated[ListQuery, Depends(list_parameters(ALLOCATIONS))]
) -> Response:
    """Which node has which address."""
    async with caller.read() as (session, visible):
        id = (await find_network(session, network, visible)).id
        return await read_page(
            session,
            visible,
            query,
            select_allocations,
            AllocationOut,
            AllocationOut.of,
            "a.network_id = :network_id",
            network_id=id,
        )


@router.post("/{network}/allocations", status_code=201, response_model=Page[AllocationOut])
async def allocate_address(caller: Writer, terms: PostTerms, network: Key, body: AllocationIn) -> Response:
    """Give a node an address without binding it to the network."""
    address = None if body.address is None else parse_address(body.address, "/address")

    async def work(session: Session) -> Page[AllocationOut]:
        node = await get_node(session, body.node, EVERYTHING)
        await caller.authorize(session, node.deployment_id)
        record = await find_network(session, network, EVERYTHING)
        allocated = await allocations.allocate_address(session, record.name, node.id, address)
        if not allocated:
            raise Invalid(f"Network {record.name!r} has no range for nodes; add one, or name an address.", "/address")
        return Page[AllocationOut](items=[AllocationOut.of(allocation) for allocation in allocated], next=None)

    return await write(caller, terms, work, status=201)


@router.delete("/{network}/allocations/{address}", status_code=204)
async def free_address(caller: Writer, terms: EditTerms, network: Key, address: Key) -> Response:
    """Take back an address that was given by hand."""
    parsed = parse_address(address)

    def check_terms(allocation: AllocationRecord) -> None:
        terms.check(AllocationOut.of(allocation), f"who has {allocation.address}")

    async def work(session: Session) -> None:
        await caller.authorize(session, await read_root_id(session))
        await allocations.free_address(
            session, (await find_network(session, network, EVERYTHING)).name, parsed, check_terms
        )

    return await write(caller, terms, work)
