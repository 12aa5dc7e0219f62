"""/api/v2/node_roles"""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from rackwright.api.context import Reader, Writer
from rackwright.api.reasons import ReasonOut
from rackwright.store.binding import bind_proposed, plan_binding
from rackwright.store.deployments import get_deployment
from rackwright.store.noderoles import NodeRoleRecord, get_noderole, retry, select_noderoles
from rackwright.store.nodes import get_node
from rackwright.store.session import Session
from rackwright.store.why import why

router = APIRouter(prefix="/node_roles", tags=["node_roles"])


class BindIn(BaseModel):
    """Bind a role to a node in a deployment's open proposal."""

    model_config = ConfigDict(extra="forbid")

    node: str
    role: str
    deployment: str


class NodeRoleOut(BaseModel):
    id: int
    node: str
    role: str
    deployment: str
    state: str
    cohort: int
    run_id: int | None
    error: str

    @classmethod
    def of(cls, noderole: NodeRoleRecord) -> "NodeRoleOut":
        return cls(
            id=noderole.id,
            node=noderole.node,
            role=noderole.role,
            deployment=noderole.deployment,
            state=noderole.state.label,
            cohort=noderole.cohort,
            run_id=noderole.run_id,
            error=noderole.error,
        )


class BoundOut(BaseModel):
    """The noderole asked for, and all that came with it. In a dry run nothing has an id."""

    id: int | None
    created: list[dict[str, str | int]]


@router.get("")
async def list_all(caller: Reader, deployment: str | None = None, node: str | None = None) -> list[NodeRoleOut]:
    async with caller.server.store.read() as session:
        found = await select_noderoles(
            session,
            "WHERE (CAST(:deployment AS text) IS NULL OR d.name = :deployment)"
            " AND (CAST(:node AS text) IS NULL OR n.name = :node) ORDER BY nr.cohort, nr.id",
            deployment=deployment,
            node=node,
        )
        return [NodeRoleOut.of(noderole) for noderole in found]


@router.post("", status_code=201)
async def bind(caller: Writer, body: BindIn, dry_run: bool = False) -> BoundOut:
    async def work(session: Session) -> BoundOut:
        deployment = await get_deployment(session, body.deployment)
        node = await get_node(session, body.node)
        if dry_run:
            plan = await plan_binding(session, deployment, [(node.id, body.role)])
        else:
            plan = await bind_proposed(session, deployment, [(node.id, body.role)])
        created: list[dict[str, str | int]] = [
            {"role": one.role, "node_id": one.node_id, "cohort": one.cohort} for one in plan.created
        ]
        return BoundOut(id=None if dry_run else plan.bound[0], created=created)

    return await caller.change(work, graph=True)


@router.get("/{id}")
async def show(caller: Reader, id: int) -> NodeRoleOut:
    async with caller.server.store.read() as session:
        return NodeRoleOut.of(await get_noderole(session, id))


@router.get("/{id}/why")
async def why_waiting(caller: Reader, id: int) -> list[ReasonOut]:
    """Why is this waiting?"""
    async with caller.server.store.read() as session:
        chain = await why(session, id, caller.server.cap)
    return [ReasonOut.of(reason) for reason in chain]


@router.post("/{id}/retry")
async def ask_again(caller: Writer, id: int) -> NodeRoleOut:
    await caller.change(lambda session: retry(session, id))
    return await show(caller, id)
