"""/api/v2/networks, with their ranges, routers and allocations."""

from ipaddress import IPv4Network, IPv6Network
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Reader, Writer
from rackwright.domain.errors import Invalid
from rackwright.domain.networks import Category, Network, Range, Router, Use, parse_address, parse_subnet
from rackwright.store import allocations, networks
from rackwright.store.allocations import AllocationRecord
from rackwright.store.network_rows import NetworkRecord, get_network, plain, select_networks
from rackwright.store.nodes import get_node
from rackwright.store.session import Session

router = APIRouter(prefix="/networks", tags=["networks"])

ADDRESS = Field(max_length=60, examples=["10.0.0.10"])
NAME = Field(max_length=80, examples=["host"])


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


class RangeChange(BaseModel):
    """What is left out stays."""

    model_config = ConfigDict(extra="forbid")

    use: Use | None = None
    first: str | None = Field(None, max_length=60)
    last: str | None = Field(None, max_length=60)


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
    description: str = Field("", max_length=1000)
    vlan: int | None = None
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


class NetworkChange(BaseModel):
    """What is left out stays; null takes it away."""

    model_config = ConfigDict(extra="forbid")

    description: str = Field("", max_length=1000)
    vlan: int | None = None
    v4_subnet: str | None = Field(None, max_length=60)
    v6_subnet: str | None = Field(None, max_length=60)


class RangeOut(BaseModel):
    name: str
    use: Use
    first: str
    last: str


class RouterOut(BaseModel):
    address: str
    preference: int


class NetworkOut(BaseModel):
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
        return cls.model_validate({"id": record.id, **plain(record.network)})


class AllocationIn(BaseModel):
    """An address for a node: a certain one, or the next free of each family."""

    model_config = ConfigDict(extra="forbid")

    node: str = Field(max_length=253)
    address: str | None = Field(None, max_length=60)


class AllocationOut(BaseModel):
    id: int
    network: str
    node: str
    address: str
    range: str | None
    bound: bool
    """It goes with the node's noderole of the network, and not by hand."""

    @classmethod
    def of(cls, one: AllocationRecord) -> "AllocationOut":
        return cls(
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


@router.get("")
async def list_all(caller: Reader) -> list[NetworkOut]:
    async with caller.server.store.read() as session:
        return [NetworkOut.of(one) for one in await select_networks(session)]


@router.post("", status_code=201)
async def create(caller: Writer, body: NetworkIn) -> NetworkOut:
    """Make a network, and the role network-<name> with it."""
    network = body.network()
    return NetworkOut.of(await caller.change(lambda session: networks.create_network(session, network), graph=True))


@router.get("/{network}")
async def show(caller: Reader, network: str) -> NetworkOut:
    async with caller.server.store.read() as session:
        return NetworkOut.of(await get_network(session, network))


@router.patch("/{network}")
async def update(caller: Writer, network: str, body: NetworkChange) -> NetworkOut:
    changes: dict[str, Any] = body.model_dump(exclude_unset=True)
    for name, parse in (("v4_subnet", _v4), ("v6_subnet", _v6)):
        if name in changes:
            changes[name] = parse(changes[name])
    return NetworkOut.of(
        await caller.change(lambda session: networks.update_network(session, network, changes), graph=True)
    )


@router.delete("/{network}", status_code=204)
async def delete(caller: Writer, network: str) -> None:
    await caller.change(lambda session: networks.delete_network(session, network), graph=True)


# --- ranges and routers


@router.post("/{network}/ranges", status_code=201)
async def add_range(caller: Writer, network: str, body: RangeIn) -> NetworkOut:
    new = body.range()
    return NetworkOut.of(await caller.change(lambda session: networks.add_range(session, network, new), graph=True))


@router.patch("/{network}/ranges/{range}")
async def change_range(caller: Writer, network: str, range: str, body: RangeChange) -> NetworkOut:
    """Make a range longer or shorter, or change who gets its addresses."""
    changes: dict[str, Any] = {key: value for key, value in body.model_dump(exclude_unset=True).items() if value}
    for end in ("first", "last"):
        if end in changes:
            changes[end] = parse_address(changes[end], f"/{end}")
    return NetworkOut.of(
        await caller.change(lambda session: networks.change_range(session, network, range, changes), graph=True)
    )


@router.delete("/{network}/ranges/{range}")
async def delete_range(caller: Writer, network: str, range: str) -> NetworkOut:
    """Nobody gets an address from it any more; those who have one keep it."""
    return NetworkOut.of(
        await caller.change(lambda session: networks.delete_range(session, network, range), graph=True)
    )


@router.post("/{network}/routers", status_code=201)
async def add_router(caller: Writer, network: str, body: RouterIn) -> NetworkOut:
    new = body.router()
    return NetworkOut.of(await caller.change(lambda session: networks.add_router(session, network, new), graph=True))


@router.delete("/{network}/routers/{address}")
async def delete_router(caller: Writer, network: str, address: str) -> NetworkOut:
    parsed = str(parse_address(address))
    return NetworkOut.of(
        await caller.change(lambda session: networks.delete_router(session, network, parsed), graph=True)
    )


# --- allocations


@router.get("/{network}/allocations")
async def list_allocations(caller: Reader, network: str) -> list[AllocationOut]:
    async with caller.server.store.read() as session:
        record = await get_network(session, network)
        found = await allocations.select_allocations(
            session, "WHERE a.network_id = :id ORDER BY a.family, a.address", id=record.id
        )
    return [AllocationOut.of(one) for one in found]


@router.post("/{network}/allocations", status_code=201)
async def allocate(caller: Writer, network: str, body: AllocationIn) -> list[AllocationOut]:
    """Give a node an address without binding it to the network."""
    address = None if body.address is None else parse_address(body.address, "/address")

    async def work(session: Session) -> list[AllocationRecord]:
        node = await get_node(session, body.node)
        return await allocations.allocate(session, network, node.id, address)

    given = await caller.change(work)
    if not given:
        raise Invalid(f"Network {network!r} has no range for nodes; add one, or name an address.", "/address")
    return [AllocationOut.of(one) for one in given]


@router.delete("/{network}/allocations/{address}", status_code=204)
async def free(caller: Writer, network: str, address: str) -> None:
    """Take back an address that was given by hand."""
    parsed = parse_address(address)
    await caller.change(lambda session: allocations.free_by_hand(session, network, parsed))
