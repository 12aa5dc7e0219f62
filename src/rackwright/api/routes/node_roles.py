"""/api/v2/node_roles: roles bound to nodes, how they are bound and unbound, and why one waits."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer, answer_list
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Id, JsonMap, mask_secrets
from rackwright.api.http.writing import EditTerms, PostTerms, Terms, answer_dry_run, write, write_graph
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
    def of(cls, noderole: NodeRoleView) -> "NodeRoleOut":
        return cls.model_validate(_noderole_fields(noderole))


class NodeRoleDetail(NodeRoleOut):
    """A noderole with what it computed, and what it stands on."""

    wall: JsonMap = Field(description="What its last run returned.")
    sysdata: JsonMap = Field(description="What its role computed.")
    parents: list[int] = Field(description="The noderoles it stands on.")
    children: list[int] = Field(description="The noderoles that stand on it.")

    @classmethod
    def with_surroundings(cls, noderole: NodeRoleView, around: NodeRoleDetails) -> "NodeRoleDetail":
        data = {"wall": mask_secrets(around.wall), "sysdata": mask_secrets(around.sysdata)}
        links = {"parents": around.parents, "children": around.children}
        return cls.model_validate({**_noderole_fields(noderole), **data, **links})


def _noderole_fields(noderole: NodeRoleView) -> dict[str, object]:
    return {
        "etag": make_etag(noderole.id, noderole.user_data, noderole.committed_data),
        "id": noderole.id,
        "node": noderole.node,
        "node_id": noderole.node_id,
        "role": noderole.role,
        "role_id": noderole.role_id,
        "deployment": noderole.deployment,
        "deployment_id": noderole.deployment_id,
        "state": noderole.state.label,
        "cohort": noderole.cohort,
        "run_id": noderole.run_id,
        "doomed": noderole.doomed,
        "error": noderole.error,
        "user_data": mask_secrets(noderole.user_data),
        "committed_data": mask_secrets(noderole.committed_data),
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
        return cls(id=id_unless_new(plan.bound[0]), created=await list_created(session, plan))


@router.get("", response_model=Page[NodeRoleOut])
async def list_node_roles(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(NODE_ROLES))]
) -> Response:
    """All noderoles, or those that fit. Sorted by `cohort` they come in the order in which they can run."""
    async with caller.read(once=True) as (session, visible):
        return await read_page(session, visible, query, select_noderole_views, NodeRoleOut, _noderole_fields)


@router.post("", status_code=201, response_model=BoundOut)
async def bind_role(
    caller: Writer,
    terms: PostTerms,
    body: BindIn,
    dry_run: Annotated[bool, Query(description="Only say what it would do.")] = False,
) -> Response:
    """Bind a role to a node in the deployment's open proposal, with all that the role needs. A conflict is a 409 that
    names the rule, and nothing has changed."""

    if dry_run:

        async def dry_work(session: Session) -> BoundOut:
            deployment = await _deployment_to_bind_in(session, caller, body.deployment)
            return await BoundOut.of(session, await plan_bindings(session, caller, deployment, [body]))

        return await answer_dry_run(caller, terms, dry_work, status=201)

    async def work(session: GraphSession) -> BoundOut:
        deployment = await _deployment_to_bind_in(session, caller, body.deployment)
        return await BoundOut.of(session, await make_bindings(session, caller, deployment, [body]))

    return await write_graph(caller, terms, work, status=201)


async def _deployment_to_bind_in(session: Session, caller: Caller, name: str) -> DeploymentRecord:
    """Return the deployment, if the caller may write there."""
    deployment = await get_deployment(session, name, EVERYTHING)
    await caller.authorize(session, deployment.id)
    return deployment


async def make_bindings(
    session: GraphSession, caller: Caller, deployment: DeploymentRecord, bindings: Sequence[BindingIn]
) -> BindPlan:
    """Bind all of the roles, or none. The permission to write in the deployment was checked before."""
    return await bind_proposed(session, deployment, await _binding_requests(session, caller, bindings))


async def plan_bindings(
    session: Session, caller: Caller, deployment: DeploymentRecord, bindings: Sequence[BindingIn]
) -> BindPlan:
    """Return what `make_bindings` would do. It only reads."""
    return await plan_binding(session, deployment, await _binding_requests(session, caller, bindings))


async def _binding_requests(session: Session, caller: Caller, bindings: Sequence[BindingIn]) -> list[tuple[int, str]]:
    """Return the (node, role) pairs of the bindings, if the caller may take the nodes from where they are."""
    nodes = await find_node_locations(session, {binding.node for binding in bindings}, EVERYTHING)
    for binding in bindings:
        if binding.node not in nodes:
            raise NotFound("node", binding.node)
    for deployment_id in {node.deployment_id for node in nodes.values()}:
        await caller.authorize(session, deployment_id)  # a commit would take the nodes from there
    return [(nodes[binding.node].id, binding.role) for binding in bindings]


async def list_created(session: Session, plan: BindPlan) -> list[CreatedOut]:
    """Return the noderoles that a plan of binding makes."""
    rows = await session.rows(
        "SELECT id, name FROM nodes WHERE id = ANY (:ids)", ids=list({noderole.node_id for noderole in plan.created})
    )
    nodes = {row.id: row.name for row in rows}
    return [
        CreatedOut(
            id=id_unless_new(noderole.id),
            role=noderole.role,
            node=nodes[noderole.node_id],
            node_id=noderole.node_id,
            cohort=noderole.cohort,
        )
        for noderole in plan.created
    ]


def id_unless_new(id: int) -> int | None:
    """Return the id of a noderole that is there; None for one that would be new."""
    return id if id < PLACEHOLDER else None


@router.get("/{id}", response_model=NodeRoleDetail)
async def get_node_role(caller: ScopedReader, id: Id, fields: Fields) -> Response:
    """One noderole."""
    async with caller.read() as (session, visible):
        return answer(await _read_detail(session, id, visible), fields=fields)


async def _read_detail(session: Session, id: int, visible: Visibility) -> NodeRoleDetail:
    return NodeRoleDetail.with_surroundings(
        await get_noderole_view(session, id, visible), await read_noderole_details(session, id, visible)
    )


async def _read_detail_for(session: Session, caller: Caller, id: int) -> NodeRoleDetail:
    """Return the noderole after a change, as the caller would read it."""
    return await _read_detail(session, id, await caller.visibility(session))


async def _lock_and_check(session: Session, caller: Caller, terms: Terms, id: int) -> NodeRoleView:
    """Return the noderole, with its deployment's proposal locked: that is where its data is edited.

    Refuse a caller who may not write there, or who saw another version.
    """
    noderole = await get_noderole_view(session, id, EVERYTHING)
    await caller.authorize(session, noderole.deployment_id)
    await session.run("SELECT FROM deployments WHERE id = :id FOR NO KEY UPDATE", id=noderole.deployment_id)
    noderole = await get_noderole_view(session, id, EVERYTHING)
    terms.check(NodeRoleOut.of(noderole), f"{noderole.role} on {noderole.node}")
    return noderole


@router.patch(
    "/{id}",
    response_model=NodeRoleDetail,
    openapi_extra=patch_body(NodeRoleEdit, {"user_data": {"web": {"port": 8080}}}),
)
async def update_node_role(caller: Writer, terms: EditTerms, id: Id, request: Request) -> Response:
    """Change what people want of this one noderole: in the open proposal, and in force once that is committed."""
    patch = await read_patch(request)

    async def work(session: Session) -> NodeRoleDetail:
        noderole = await _lock_and_check(session, caller, terms, id)
        edit = patch.apply(NodeRoleEdit.model_construct(user_data=noderole.user_data))
        deployment = await get_deployment(session, noderole.deployment_id, EVERYTHING)
        await snapshots.edit_binding_data(session, deployment, noderole, edit.user_data)
        return await _read_detail_for(session, caller, id)

    return await write(caller, terms, work)


@router.delete("/{id}", status_code=204)
async def unbind_role(caller: Writer, terms: EditTerms, id: Id) -> Response:
    """Take a binding out of the open proposal, with all that stands on it. What is only proposed is gone at once;
    what is committed goes when the proposal is committed."""

    async def work(session: GraphSession) -> None:
        noderole = await _lock_and_check(session, caller, terms, id)
        await snapshots.unbind(session, await get_deployment(session, noderole.deployment_id, EVERYTHING), [id])

    return await write_graph(caller, terms, work)


@router.get("/{id}/why", response_model=list[ReasonOut])
async def get_node_role_why(caller: ScopedReader, id: Id) -> Response:
    """Why is this waiting? From the noderole down to what a person can do something about."""
    async with caller.read() as (session, visible):
        chain = await explain_waiting(session, id, visible, await cap_in_force(session))
    return answer_list([ReasonOut.of(reason) for reason in chain])


@router.post("/{id}/retry", response_model=NodeRoleDetail)
async def retry_node_role(caller: Writer, terms: PostTerms, id: Id) -> Response:
    """Run what failed, or is active, once more."""

    async def work(session: Session) -> NodeRoleDetail:
        await _lock_and_check(session, caller, terms, id)
        await noderoles.retry_noderole(session, id)
        return await _read_detail_for(session, caller, id)

    return await write(caller, terms, work)
