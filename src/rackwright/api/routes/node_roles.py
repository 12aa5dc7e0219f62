"""/api/v2/node_roles"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer, answer_list
from rackwright.api.http.etags import tag
from rackwright.api.http.paging import Asked, page, parameters
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Id, JsonMap, shown
from rackwright.api.http.writing import Editing, Posting, Terms, try_out, write, write_graph
from rackwright.api.waiting_reasons import ReasonOut, cap_in_force
from rackwright.domain.errors import NotFound
from rackwright.domain.graph.binding import PLACEHOLDER, BindPlan
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.graph import noderoles, snapshots
from rackwright.store.graph.binding import bind_proposed, plan_binding
from rackwright.store.graph.deployments import DeploymentRecord, get_deployment
from rackwright.store.graph.noderole_views import (
    NODE_ROLES,
    NodeRoleDetails,
    NodeRoleView,
    get_noderole_view,
    read_noderole_details,
    select_noderole_views,
)
from rackwright.store.graph.why import explain_waiting
from rackwright.store.machines.nodes import find_node_locations

router = APIRouter(prefix="/node_roles", tags=["node_roles"])


class BindingIn(BaseModel):
    """A role for a node."""

    model_config = ConfigDict(extra="forbid")

    node: str = Field(max_length=253, examples=["n1.rack.example"])
    role: str = Field(max_length=63, examples=["crowbar-installed-node"])


class BindIn(BindingIn):
    """Bind a role to a node in a deployment's open proposal."""

    deployment: str = Field(max_length=63, examples=["web"])


class NodeRoleOut(Resource):
    """A role bound to a node."""

    id: int
    node: str = Field(examples=["n1.rack.example"])
    node_id: int
    role: str = Field(examples=["crowbar-installed-node"])
    role_id: int
    deployment: str = Field(examples=["web"])
    deployment_id: int
    state: str = Field(description="active, proposed, blocked, todo, transition or error.", examples=["todo"])
    cohort: int = Field(description="How far down the graph it stands.")
    run_id: int | None = Field(description="The run that has it in hand, while it is in transition.")
    doomed: bool = Field(description="It goes as soon as its run has ended.")
    error: str
    user_data: JsonMap = Field(description="What people want of it: in the open proposal if there is one.")
    committed_data: JsonMap = Field(description="The same as committed, which is what is in force.")

    @classmethod
    def of(cls, one: NodeRoleView) -> "NodeRoleOut":
        return cls.model_validate(_common(one))


class NodeRoleDetail(NodeRoleOut):
    """A noderole with what it computed, and what it stands on."""

    wall: JsonMap = Field(description="What its last run returned.")
    sysdata: JsonMap = Field(description="What its role computed.")
    parents: list[int] = Field(description="The noderoles it stands on.")
    children: list[int] = Field(description="The noderoles that stand on it.")

    @classmethod
    def near(cls, one: NodeRoleView, near: NodeRoleDetails) -> "NodeRoleDetail":
        more = {"wall": shown(near.wall), "sysdata": shown(near.sysdata)}
        return cls.model_validate({**_common(one), **more, "parents": near.parents, "children": near.children})


def _common(one: NodeRoleView) -> dict[str, object]:
    return {
        "etag": tag(one.id, one.user_data, one.committed_data),
        "id": one.id,
        "node": one.node,
        "node_id": one.node_id,
        "role": one.role,
        "role_id": one.role_id,
        "deployment": one.deployment,
        "deployment_id": one.deployment_id,
        "state": one.state.label,
        "cohort": one.cohort,
        "run_id": one.run_id,
        "doomed": one.doomed,
        "error": one.error,
        "user_data": shown(one.user_data),
        "committed_data": shown(one.committed_data),
    }


class NodeRoleEdit(BaseModel):
    """What people change of a noderole."""

    model_config = ConfigDict(extra="forbid")

    user_data: JsonMap


class CreatedOut(BaseModel):
    """A noderole that binding makes."""

    id: int | None = Field(description="Null in a dry run.")
    role: str
    node: str
    node_id: int
    cohort: int


class BoundOut(BaseModel):
    """The noderole asked for, and all that came with it. In a dry run nothing new has an id."""

    id: int | None = Field(description="The noderole asked for; null if it would be new and this is a dry run.")
    created: list[CreatedOut]

    @classmethod
    async def of(cls, session: Session, plan: BindPlan) -> "BoundOut":
        return cls(id=real_id(plan.bound[0]), created=await created_by(session, plan))


@router.get("", response_model=Page[NodeRoleOut])
async def list_node_roles(caller: ScopedReader, asked: Annotated[Asked, Depends(parameters(NODE_ROLES))]) -> Response:
    """All noderoles, or those that fit. Sorted by `cohort` they come in the order in which they can run."""
    async with caller.read(once=True) as (session, visible):
        return await page(session, visible, asked, select_noderole_views, NodeRoleOut, _common)


@router.post("", status_code=201, response_model=BoundOut)
async def bind_role(
    caller: Writer,
    terms: Posting,
    body: BindIn,
    dry_run: Annotated[bool, Query(description="Only say what it would do.")] = False,
) -> Response:
    """Bind a role to a node in the deployment's open proposal, with all that the role needs. A conflict is a 409 that
    names the rule, and nothing has changed."""

    if dry_run:

        async def dry_work(session: Session) -> BoundOut:
            deployment = await _deployment_to_bind_in(session, caller, body.deployment)
            return await BoundOut.of(session, await planned(session, caller, deployment, [body]))

        return await try_out(caller, terms, dry_work, status=201)

    async def work(session: GraphSession) -> BoundOut:
        deployment = await _deployment_to_bind_in(session, caller, body.deployment)
        return await BoundOut.of(session, await bound(session, caller, deployment, [body]))

    return await write_graph(caller, terms, work, status=201)


async def _deployment_to_bind_in(session: Session, caller: Caller, name: str) -> DeploymentRecord:
    """Return the deployment, if the caller may write there."""
    deployment = await get_deployment(session, name, EVERYTHING)
    await caller.authorize(session, deployment.id)
    return deployment


async def bound(
    session: GraphSession, caller: Caller, deployment: DeploymentRecord, wanted: Sequence[BindingIn]
) -> BindPlan:
    """Bind all of it, or none. Who may write in the deployment was looked at before."""
    return await bind_proposed(session, deployment, await _requests(session, caller, wanted))


async def planned(
    session: Session, caller: Caller, deployment: DeploymentRecord, wanted: Sequence[BindingIn]
) -> BindPlan:
    """Return what `bound` would do. It only reads."""
    return await plan_binding(session, deployment, await _requests(session, caller, wanted))


async def _requests(session: Session, caller: Caller, wanted: Sequence[BindingIn]) -> list[tuple[int, str]]:
    """Return the (node, role) pairs that are wanted, if the caller may take the nodes from where they are."""
    nodes = await find_node_locations(session, {binding.node for binding in wanted}, EVERYTHING)
    for binding in wanted:
        if binding.node not in nodes:
            raise NotFound("node", binding.node)
    for deployment_id in {node.deployment_id for node in nodes.values()}:
        await caller.authorize(session, deployment_id)  # a commit would take them from there
    return [(nodes[binding.node].id, binding.role) for binding in wanted]


async def created_by(session: Session, plan: BindPlan) -> list[CreatedOut]:
    names = await session.rows(
        "SELECT id, name FROM nodes WHERE id = ANY (:ids)", ids=list({one.node_id for one in plan.created})
    )
    nodes = {row.id: row.name for row in names}
    return [
        CreatedOut(id=real_id(one.id), role=one.role, node=nodes[one.node_id], node_id=one.node_id, cohort=one.cohort)
        for one in plan.created
    ]


def real_id(id: int) -> int | None:
    """None for what would be new."""
    return id if id < PLACEHOLDER else None


@router.get("/{id}", response_model=NodeRoleDetail)
async def get_node_role(caller: ScopedReader, id: Id, fields: Fields) -> Response:
    """One noderole."""
    async with caller.read() as (session, visible):
        return answer(await _detail(session, id, visible), fields=fields)


async def _detail(session: Session, id: int, visible: Visibility) -> NodeRoleDetail:
    return NodeRoleDetail.near(
        await get_noderole_view(session, id, visible), await read_noderole_details(session, id, visible)
    )


async def _shown(session: Session, caller: Caller, id: int) -> NodeRoleDetail:
    """The same after a change, as its caller would read it."""
    return await _detail(session, id, await caller.visibility(session))


async def _locked(session: Session, caller: Caller, terms: Terms, id: int) -> NodeRoleView:
    """The noderole, with its deployment's proposal locked: that is where what people want of it is edited."""
    found = await get_noderole_view(session, id, EVERYTHING)
    await caller.authorize(session, found.deployment_id)
    await session.run("SELECT FROM deployments WHERE id = :id FOR NO KEY UPDATE", id=found.deployment_id)
    found = await get_noderole_view(session, id, EVERYTHING)
    terms.check(NodeRoleOut.of(found), f"{found.role} on {found.node}")
    return found


@router.patch(
    "/{id}",
    response_model=NodeRoleDetail,
    openapi_extra=patch_body(NodeRoleEdit, {"user_data": {"web": {"port": 8080}}}),
)
async def update_node_role(caller: Writer, terms: Editing, id: Id, request: Request) -> Response:
    """Change what people want of this one noderole: in the open proposal, and in force once that is committed."""
    patch = await read_patch(request)

    async def work(session: Session) -> NodeRoleDetail:
        found = await _locked(session, caller, terms, id)
        wanted = patch.apply(NodeRoleEdit.model_construct(user_data=found.user_data))
        deployment = await get_deployment(session, found.deployment_id, EVERYTHING)
        await snapshots.edit_binding_data(session, deployment, found, wanted.user_data)
        return await _shown(session, caller, id)

    return await write(caller, terms, work)


@router.delete("/{id}", status_code=204)
async def unbind_role(caller: Writer, terms: Editing, id: Id) -> Response:
    """Take a binding out of the open proposal, with all that stands on it. What is only proposed is gone at once;
    what is committed goes when the proposal is committed."""

    async def work(session: GraphSession) -> None:
        found = await _locked(session, caller, terms, id)
        await snapshots.unbind(session, await get_deployment(session, found.deployment_id, EVERYTHING), [id])

    return await write_graph(caller, terms, work)


@router.get("/{id}/why", response_model=list[ReasonOut])
async def get_node_role_why(caller: ScopedReader, id: Id) -> Response:
    """Why is this waiting? From the noderole down to what a person can do something about."""
    async with caller.read() as (session, visible):
        chain = await explain_waiting(session, id, visible, await cap_in_force(session))
    return answer_list([ReasonOut.of(reason) for reason in chain])


@router.post("/{id}/retry", response_model=NodeRoleDetail)
async def retry_node_role(caller: Writer, terms: Posting, id: Id) -> Response:
    """Run what failed, or is active, once more."""

    async def work(session: Session) -> NodeRoleDetail:
        await _locked(session, caller, terms, id)
        await noderoles.retry_noderole(session, id)
        return await _shown(session, caller, id)

    return await write(caller, terms, work)
