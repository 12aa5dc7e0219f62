"""/api/v2/nodes/{node}/allocations, /networks/{network}/usage: a node's addresses, and a network's free ones.

Addresses are given out in `networks.py`.
"""

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from rackwright.api.context import ScopedReader
from rackwright.api.http.answers import Page, answer, answer_list
from rackwright.api.http.types import Key
from rackwright.api.routes.networks import AllocationOut, RangeOut
from rackwright.store.machines.nodes import get_node
from rackwright.store.networks.allocations import select_allocations
from rackwright.store.networks.network_rows import find_network
from rackwright.store.networks.network_usage import RangeUsage, read_usage

router = APIRouter()


class GapOut(BaseModel):
    """Free addresses in a row."""

    first: str = Field(examples=["10.0.0.20"])
    last: str = Field(examples=["10.0.0.99"])
    size: int = Field(examples=[80])


class UsageOut(RangeOut):
    """A range, with how much of it is given out."""

    taken: int = Field(description="How many of its addresses nodes have.")
    free: int = Field(description="How many nobody has.")
    gaps: list[GapOut] = Field(description="Where those are; of very many gaps the lowest.")
    more_gaps: int = Field(description="How many gaps are not in this answer.")

    @classmethod
    def of(cls, usage: RangeUsage) -> "UsageOut":
        gaps = [GapOut(first=str(gap.first), last=str(gap.last), size=gap.size) for gap in usage.gaps]
        return cls(
            name=usage.range.name,
            use=usage.range.use,
            first=str(usage.range.first),
            last=str(usage.range.last),
            taken=usage.taken,
            free=usage.free,
            gaps=gaps,
            more_gaps=usage.more_gaps,
        )


@router.get("/nodes/{node}/allocations", response_model=Page[AllocationOut], tags=["nodes"])
async def list_node_allocations(caller: ScopedReader, node: Key) -> Response:
    """The addresses that a node has, on every network."""
    async with caller.read() as (session, visible):
        id = (await get_node(session, node, visible)).id
        allocations = await select_allocations(session, "WHERE a.node_id = :id ORDER BY w.name, a.family", id=id)
    return answer(Page[AllocationOut](items=[AllocationOut.of(allocation) for allocation in allocations], next=None))


@router.get("/networks/{network}/usage", response_model=list[UsageOut], tags=["networks"])
async def get_network_usage(caller: ScopedReader, network: Key) -> Response:
    """How much of each range is given out, and where its gaps are."""
    async with caller.read() as (session, visible):
        usages = await read_usage(session, await find_network(session, network, visible))
    return answer_list([UsageOut.of(usage) for usage in usages])
