"""/api/v2/nodes/NODE/reinstall: what installing a node anew would wipe, and doing it once somebody confirmed that."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import ScopedReader, Writer
from rackwright.api.http.answers import answer
from rackwright.api.http.types import Key
from rackwright.api.http.writing import PostTerms, write
from rackwright.api.routes.deployments.deployment_plans import InstallOut, show_installs
from rackwright.api.routes.node_roles import NodeRoleOut
from rackwright.api.routes.nodes import NodeOut
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.noderole_views import get_noderole_view
from rackwright.store.machines.nodes import get_node, lock_node
from rackwright.store.machines.reinstalls import plan_reinstall, start_reinstall

router = APIRouter(prefix="/nodes", tags=["nodes"])


class ReinstallIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    digest: str | None = Field(
        None,
        max_length=128,
        description="Of what you saw. If that changed since, nothing is done: 412. Needed where data is wiped: else"
        " 428.",
    )


class ReinstallOut(BaseModel):
    """What a reinstall would do."""

    digest: str = Field(description="Send it with the reinstall: it is refused if it would do anything else.")
    node_role_id: int = Field(description="The noderole that installs.")
    installs: list[InstallOut] = Field(description="What the node is given, and what is lost; one.")


@router.get("/{node}/reinstall", response_model=ReinstallOut)
async def get_reinstall(caller: ScopedReader, node: Key) -> Response:
    """What a reinstall of the node would install and wipe, with the digest that confirms it."""
    async with caller.read() as (session, visible):
        plan = await plan_reinstall(session, await get_node(session, node, visible))
        installs = await show_installs(caller.server, plan.installs)
        return answer(ReinstallOut(digest=plan.digest, node_role_id=plan.node_role_id, installs=installs))


@router.post("/{node}/reinstall", response_model=NodeRoleOut)
async def reinstall_node(caller: Writer, terms: PostTerms, node: Key, body: ReinstallIn | None = None) -> Response:
    """Install the node's operating system anew. All that is on its disks is lost. If that is data, it needs the digest
    of what you saw. Answers with the noderole that does it."""

    async def work(session: Session) -> NodeRoleOut:
        record = await lock_node(session, node)
        await caller.authorize(session, record.deployment_id)
        terms.check(NodeOut.of(record), f"node {record.name}")
        started = await start_reinstall(session, record, body.digest if body else None)
        return NodeRoleOut.of(await get_noderole_view(session, started, EVERYTHING))

    return await write(caller, terms, work)
