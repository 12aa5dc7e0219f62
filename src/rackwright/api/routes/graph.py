"""/api/v2/graph, /why and /inventory: the noderole graph, what waits for what, and all machines for Ansible."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue

from rackwright.api.context import ScopedReader
from rackwright.api.http.answers import Page, answer
from rackwright.api.http.types import Key
from rackwright.api.waiting_reasons import ReasonOut, cap_in_force
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.graph.graph_view import GraphView, read_graph_view
from rackwright.store.graph.why import explain_waiting, select_waiting
from rackwright.store.machines.ansible_inventory import read_ansible_inventory
from rackwright.store.machines.nodes import get_node

router = APIRouter()

MOST_VERTICES = 20_000
Limit = Annotated[int, Query(ge=1, le=MOST_VERTICES, description="How many noderoles at most.")]


class VertexOut(BaseModel):
    id: int = Field(description="Of the noderole.")
    node: str
    role: str
    deployment: str
    state: str
    cohort: int


class EdgeOut(BaseModel):
    parent: int
    child: int


class GraphOut(BaseModel):
    """Noderoles, and which stands on which."""

    vertices: list[VertexOut]
    edges: list[EdgeOut]
    whole: bool = Field(description="False: there are more than `limit`; these are the ones furthest up.")

    @classmethod
    def of(cls, graph: GraphView) -> "GraphOut":
        return cls(
            vertices=[
                VertexOut(
                    id=vertex.id,
                    node=vertex.node,
                    role=vertex.role,
                    deployment=vertex.deployment,
                    state=vertex.state.label,
                    cohort=vertex.cohort,
                )
                for vertex in graph.vertices
            ],
            edges=[EdgeOut(parent=parent, child=child) for parent, child in graph.edges],
            whole=graph.complete,
        )


@router.get("/graph", response_model=GraphOut, tags=["graph"])
async def get_graph(caller: ScopedReader, limit: Limit = 5000) -> Response:
    """The whole noderole graph."""
    async with caller.read() as (session, visible):
        return answer(GraphOut.of(await read_graph_view(session, None, limit, visible)))


@router.get("/deployments/{deployment}/graph", response_model=GraphOut, tags=["deployments"])
async def get_deployment_graph(caller: ScopedReader, deployment: Key, limit: Limit = 5000) -> Response:
    """The noderoles of a deployment, and those of others that they stand on directly."""
    async with caller.read() as (session, visible):
        record = await get_deployment(session, deployment, visible)
        return answer(GraphOut.of(await read_graph_view(session, record.id, limit, visible)))


class ChainOut(BaseModel):
    """Why one noderole waits: from itself to what a person can do something about."""

    node_role_id: int
    title: str
    chain: list[ReasonOut]


@router.get("/why", response_model=Page[ChainOut], tags=["why"])
async def get_why(
    caller: ScopedReader,
    deployment: Annotated[str | None, Query(max_length=300, description="Only there, by name or id.")] = None,
    node: Annotated[str | None, Query(max_length=300, description="Only there, by name or id.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="How many at most.")] = 20,
) -> Response:
    """What waits, and for what: the first noderoles that are committed and not active."""
    async with caller.read() as (session, visible):
        deployment_id = None if deployment is None else (await get_deployment(session, deployment, visible)).id
        node_id = None if node is None else (await get_node(session, node, visible)).id
        cap = await cap_in_force(session)
        ids = await select_waiting(session, deployment_id, node_id, limit, visible)
        chains = [await explain_waiting(session, id, visible, cap) for id in ids]
    items = [
        ChainOut(
            node_role_id=chain[0].node_role_id, title=chain[0].title, chain=[ReasonOut.of(reason) for reason in chain]
        )
        for chain in chains
    ]
    return answer(Page[ChainOut](items=items, next=None))


@router.get("/inventory", response_model=dict[str, JsonValue], tags=["inventory"])
async def get_inventory(caller: ScopedReader) -> Response:
    """All machines as a dynamic inventory for Ansible: groups by deployment, role and group."""
    async with caller.read() as (session, visible):
        return JSONResponse(await read_ansible_inventory(session, visible))
