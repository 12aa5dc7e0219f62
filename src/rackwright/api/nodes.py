"""/api/v2/nodes"""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Reader, Writer
from rackwright.store.machines import accept
from rackwright.store.nodes import NewNode, NodeRecord, create_node, delete_node, get_node, select_nodes

router = APIRouter(prefix="/nodes", tags=["nodes"])


class NodeIn(BaseModel):
    """A machine to add. One that an operator adds is available at once."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=253, examples=["n1.rack.example"])
    description: str = Field("", max_length=1000)
    deployment: str | None = None
    alive: bool = False
    macs: list[str] = Field(default_factory=list, max_length=64)
    uuid: str | None = None


class NodeOut(BaseModel):
    id: int
    name: str
    description: str
    admin: bool
    system: bool
    alive: bool
    available: bool
    deployment: str
    bootenv: str
    macs: list[str]
    uuid: str | None
    state: str

    @classmethod
    def of(cls, node: NodeRecord) -> "NodeOut":
        return cls(
            id=node.id,
            name=node.name,
            description=node.description,
            admin=node.admin,
            system=node.system,
            alive=node.alive,
            available=node.available,
            deployment=node.deployment,
            bootenv=node.bootenv,
            macs=node.macs,
            uuid=node.uuid,
            state=node.state.label,
        )


@router.get("")
async def list_all(caller: Reader) -> list[NodeOut]:
    async with caller.server.store.read() as session:
        return [NodeOut.of(node) for node in await select_nodes(session, "ORDER BY n.name")]


@router.post("", status_code=201)
async def create(caller: Writer, body: NodeIn) -> NodeOut:
    new = NewNode(body.name, body.description, False, body.alive, True, body.deployment, body.macs, body.uuid)
    id = await caller.change(lambda session: create_node(session, new), graph=True)
    return await show(caller, str(id))


@router.get("/{node}")
async def show(caller: Reader, node: str) -> NodeOut:
    async with caller.server.store.read() as session:
        return NodeOut.of(await get_node(session, node))


@router.post("/{node}/accept")
async def accept_machine(caller: Writer, node: str) -> NodeOut:
    """Let a new machine in."""
    await caller.change(lambda session: accept(session, node))
    return await show(caller, node)


@router.delete("/{node}", status_code=204)
async def delete(caller: Writer, node: str) -> None:
    await caller.change(lambda session: delete_node(session, node), graph=True)
