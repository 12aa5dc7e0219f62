"""/api/v2/deployments: the tree of deployments, and the steps from a proposal to what is in force."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from rackwright.api.audit import record_refusal
from rackwright.api.context import Caller, Forbidden, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Key, Line, Name
from rackwright.api.http.writing import EditTerms, PostTerms, Terms, answer_dry_run, write_graph
from rackwright.api.routes.deployments.bind_targets import MOST_BINDINGS, TargetsIn, TargetsOut, try_targets
from rackwright.api.routes.deployments.deployment_plans import PlanOut, show_plan
from rackwright.api.routes.node_roles import (
    BindingIn,
    CreatedOut,
    id_unless_new,
    list_created,
    make_bindings,
    plan_bindings,
)
from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.domain.graph.binding import BindPlan
from rackwright.domain.graph.snapshots import Difference
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits, deployment_moves, snapshots
from rackwright.store.graph import deployments as stored
from rackwright.store.graph.deployments import (
    DEPLOYMENTS,
    SYSTEM,
    DeploymentRecord,
    lock_deployment,
    select_deployments,
)

router = APIRouter(prefix="/deployments", tags=["deployments"])


class DeploymentIn(BaseModel):
    """A deployment to make. It begins with an open, empty proposal."""

    model_config = ConfigDict(extra="forbid")

    name: Name = Field(examples=["web"])
    parent: str | None = Field(None, max_length=63, description="The one it is below; the system deployment if none.")
    description: Line = Field("", examples=["The shop's front ends"])


class DeploymentEdit(BaseModel):
    """What people change of a deployment itself. All else is a change of its proposal."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    parent: str | None = Field(max_length=63, description="The one it is below; null for the system deployment alone.")
    description: Line


class BindingsIn(BaseModel):
    """Roles for nodes: all of them or, if one cannot be, none."""

    model_config = ConfigDict(extra="forbid")

    bindings: list[BindingIn] = Field(min_length=1, max_length=MOST_BINDINGS)


class BindingsOut(BaseModel):
    """The noderoles asked for, and all that came with them. In a dry run nothing new has an id."""

    ids: list[int | None] = Field(description="Of the noderoles asked for, in their order; null for what would be new.")
    created: list[CreatedOut]

    @classmethod
    async def of(cls, session: Session, plan: BindPlan) -> "BindingsOut":
        return cls(ids=[id_unless_new(id) for id in plan.bound], created=await list_created(session, plan))


class DeploymentOut(Resource):
    """A scope of work, in a tree."""

    id: int
    name: str = Field(examples=["web"])
    description: str
    parent: str | None = Field(examples=["system"])
    parent_id: int | None
    phantom_id: int = Field(description="The node that carries its services.")
    system: bool = Field(description="The root of all others, which is never proposed.")
    held: bool = Field(description="Recalled: nothing of it starts.")
    head_id: int | None = Field(description="The snapshot in force.")
    proposed_id: int | None = Field(description="The open proposal.")
    state: str = Field(description="empty, proposed, committed, active, error or held.", examples=["active"])
    noderoles: dict[str, int] = Field(description="How many are in which state.", examples=[{"active": 12}])
    behind: bool = Field(
        description="A barclamp was imported anew, and its next commit has what is bound stand as the roles say now."
    )

    @classmethod
    def of(cls, deployment: DeploymentRecord) -> "DeploymentOut":
        return cls.model_validate(_deployment_fields(deployment))


class DeploymentTree(DeploymentOut):
    """A deployment, and those below it."""

    children: list["DeploymentTree"]
    cut: bool = Field(description="It has some below it that are not shown here: ask for its own tree.")


def _deployment_fields(deployment: DeploymentRecord) -> dict[str, object]:
    return {
        "etag": make_etag(
            deployment.id,
            deployment.name,
            deployment.description,
            deployment.parent_id,
            deployment.head_id,
            deployment.proposed_id,
        ),
        "id": deployment.id,
        "name": deployment.name,
        "description": deployment.description,
        "parent": deployment.parent,
        "parent_id": deployment.parent_id,
        "phantom_id": deployment.phantom_id,
        "system": deployment.system,
        "held": deployment.held,
        "head_id": deployment.head_id,
        "proposed_id": deployment.proposed_id,
        "state": deployment.state.value,
        "noderoles": {state.label: count for state, count in deployment.counts.items()},
        "behind": deployment.upgrade_due,
    }


class CommitIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    digest: str | None = Field(
        None,
        max_length=128,
        description="Of the plan you saw. If the plan has changed since, nothing is done: 412. Needed where data is"
        " wiped: else 428.",
    )
    comment: Line = ""


class RollbackIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    snapshot: int = Field(ge=1, le=2**63 - 1, description="The snapshot to go back to.")


class PlaceOut(BaseModel):
    node: str
    role: str


class RollbackOut(BaseModel):
    """The proposal that says what the earlier snapshot said."""

    deployment: DeploymentOut
    not_restorable: list[PlaceOut] = Field(description="Bindings of nodes or roles that are gone.")


class DifferenceOut(BaseModel):
    """How to get from one snapshot to another."""

    old: int
    new: int
    roles_added: list[str]
    roles_removed: list[str]
    roles_changed: list[str]
    bindings_added: list[PlaceOut]
    bindings_removed: list[PlaceOut]
    bindings_changed: list[PlaceOut]

    @classmethod
    def of(cls, old: int, new: int, difference: Difference) -> "DifferenceOut":
        names = ("bindings_added", "bindings_removed", "bindings_changed")
        return cls(
            old=old,
            new=new,
            roles_added=list(difference.roles_added),
            roles_removed=list(difference.roles_removed),
            roles_changed=list(difference.roles_changed),
            **{name: [PlaceOut(node=node, role=role) for node, role in getattr(difference, name)] for name in names},
        )


@router.get("", response_model=Page[DeploymentOut])
async def list_deployments(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(DEPLOYMENTS))]
) -> Response:
    """All deployments, or those that fit."""
    async with caller.read(once=True) as (session, visible):
        return await read_page(session, visible, query, select_deployments, DeploymentOut, DeploymentOut.of)


@router.post("", status_code=201, response_model=DeploymentOut)
async def create_deployment(caller: Writer, terms: PostTerms, body: DeploymentIn) -> Response:
    """A new deployment, with an open proposal."""

    async def work(session: GraphSession) -> DeploymentOut:
        parent = await stored.get_deployment(session, body.parent or SYSTEM, EVERYTHING)
        await caller.authorize(session, parent.id)
        id = await stored.create_deployment(session, body.name, parent.id, body.description)
        return DeploymentOut.of(await stored.get_deployment(session, id, EVERYTHING))

    return await write_graph(caller, terms, work, status=201, location=lambda _: f"/api/v2/deployments/{body.name}")


@router.get("/{deployment}", response_model=DeploymentOut)
async def get_deployment(caller: ScopedReader, deployment: Key, fields: Fields) -> Response:
    """One deployment."""
    async with caller.read() as (session, visible):
        return answer(DeploymentOut.of(await stored.get_deployment(session, deployment, visible)), fields=fields)


@router.get("/{deployment}/tree", response_model=DeploymentTree)
async def get_deployment_tree(caller: ScopedReader, deployment: Key) -> Response:
    """A deployment with all those below it; of `system`: the whole tree."""
    async with caller.read() as (session, visible):
        root = await stored.get_deployment(session, deployment, visible)
        where = f"WHERE {visible.condition(DEPLOYMENTS.seen)} ORDER BY d.name"
        records = await select_deployments(session, where, **visible.values)
    below: dict[int | None, list[DeploymentRecord]] = {}
    for record in records:
        below.setdefault(record.parent_id, []).append(record)

    def make_tree(record: DeploymentRecord, levels: int) -> DeploymentTree:
        children = below.get(record.id, [])
        subtrees = [make_tree(child, levels - 1) for child in children] if levels > 1 else []
        return DeploymentTree.model_validate(
            {**_deployment_fields(record), "children": subtrees, "cut": len(subtrees) < len(children)}
        )

    # A tree that was made before its depth was bounded could be deeper than JSON can be written.
    return answer(make_tree(root, stored.MAX_DEPTH))


async def _lock_and_check(session: Session, caller: Caller, terms: Terms, key: str) -> DeploymentRecord:
    """Return the deployment, locked, if the caller may change it and saw its current version."""
    return await _check_change(session, caller, terms, await lock_deployment(session, key))


async def _check_change(
    session: Session, caller: Caller, terms: Terms, deployment: DeploymentRecord
) -> DeploymentRecord:
    """Return the deployment, if the caller may change it and saw its current version."""
    await caller.authorize(session, deployment.id)
    terms.check(DeploymentOut.of(deployment), f"deployment {deployment.name}")
    return deployment


@router.patch(
    "/{deployment}",
    response_model=DeploymentOut,
    openapi_extra=patch_body(DeploymentEdit, {"description": "The shop's front ends"}),
)
async def update_deployment(caller: Writer, terms: EditTerms, deployment: Key, request: Request) -> Response:
    """Change its name, its description, or its place in the tree. Moving it takes the permission where it is and where
    it goes, and is refused while something in it depends on what it leaves."""
    patch = await read_patch(request)

    async def work(session: GraphSession) -> DeploymentOut:
        record = await _lock_and_check(session, caller, terms, deployment)
        edit = patch.apply(DeploymentEdit(name=record.name, parent=record.parent, description=record.description))
        await stored.describe_deployment(session, record, edit.description)
        if edit.parent != record.parent:
            parent = await stored.get_deployment(session, edit.parent or SYSTEM, EVERYTHING)
            for parent_id in (record.parent_id, parent.id):
                await caller.authorize(session, parent_id)
            await deployment_moves.move_deployment(session, record, parent)
        await deployment_moves.rename_deployment(session, record, edit.name)
        return DeploymentOut.of(await stored.get_deployment(session, record.id, EVERYTHING))

    return await write_graph(caller, terms, work)


@router.delete("/{deployment}", status_code=204)
async def delete_deployment(caller: Writer, terms: EditTerms, deployment: Key) -> Response:
    """Take a deployment out of the tree. Its nodes go to its parent."""

    async def work(session: GraphSession) -> None:
        record = await _lock_and_check(session, caller, terms, deployment)
        await stored.delete_deployment(session, record.id)

    return await write_graph(caller, terms, work)


# --- the time line


async def _step(
    caller: Caller, terms: Terms, key: str, act: Callable[[GraphSession, DeploymentRecord], Awaitable[object]]
) -> Response:
    """Take a deployment one step along its time line; answer with the deployment after it."""

    async def work(session: GraphSession) -> DeploymentOut:
        record = await _lock_and_check(session, caller, terms, key)
        await act(session, record)
        return DeploymentOut.of(await stored.get_deployment(session, record.id, EVERYTHING))

    return await write_graph(caller, terms, work)


@router.post("/{deployment}/propose", response_model=DeploymentOut)
async def propose_deployment(caller: Writer, terms: PostTerms, deployment: Key) -> Response:
    """Open a copy of what is in force, to edit it. What runs goes on."""
    return await _step(caller, terms, deployment, snapshots.propose)


@router.post("/{deployment}/recall", response_model=DeploymentOut)
async def recall_deployment(caller: Writer, terms: PostTerms, deployment: Key) -> Response:
    """Hold the deployment, so that nothing of it starts, and open a copy of what is in force."""
    return await _step(caller, terms, deployment, snapshots.recall)


@router.post("/{deployment}/discard", response_model=DeploymentOut)
async def discard_proposal(caller: Writer, terms: PostTerms, deployment: Key) -> Response:
    """Drop the open proposal. A hold ends."""
    return await _step(caller, terms, deployment, snapshots.discard)


def _body_form(body: object) -> str:
    """Return which of the two bodies of `bind_roles` was sent."""
    return "one by one" if isinstance(body, dict) and body.keys() & TargetsIn.model_fields.keys() else "together"


BindBody = Annotated[
    Annotated[BindingsIn, Tag("together")] | Annotated[TargetsIn, Tag("one by one")], Discriminator(_body_form)
]


@router.post(
    "/{deployment}/bind",
    status_code=201,
    response_model=BindingsOut,
    responses={200: {"model": TargetsOut, "description": "A dry run with `each`: the answer for each target."}},
)
async def bind_roles(
    caller: Writer,
    terms: PostTerms,
    deployment: Key,
    body: BindBody,
    request: Request,
    dry_run: Annotated[bool, Query(description="Only say what it would do.")] = False,
) -> Response:
    """Bind roles to many nodes in the open proposal at once, with all that the roles need. A conflict is a 409 that
    names the rule, and nothing has changed. A dry run with `each` says of every target by itself whether it may be
    bound, what would be made with it, or why it is refused."""
    if isinstance(body, TargetsIn):
        if not dry_run:
            raise Invalid("`each` is for dry runs: add `?dry_run=true`. To bind, send `bindings`.", "/each")
        return await _try_targets(caller, terms, deployment, body, request)

    if dry_run:

        async def dry_work(session: Session) -> BindingsOut:
            record = await stored.get_deployment(session, deployment, EVERYTHING)
            plan = await plan_bindings(
                session, caller, await _check_change(session, caller, terms, record), body.bindings
            )
            return await BindingsOut.of(session, plan)

        return await answer_dry_run(caller, terms, dry_work, status=201)

    async def work(session: GraphSession) -> BindingsOut:
        record = await _lock_and_check(session, caller, terms, deployment)
        return await BindingsOut.of(session, await make_bindings(session, caller, record, body.bindings))

    return await write_graph(caller, terms, work, status=201)


async def _try_targets(caller: Caller, terms: Terms, deployment: str, targets: TargetsIn, request: Request) -> Response:
    """Answer a dry run with `each`, and record the refusals for want of a permission."""
    targets.check_size()
    forbidden: list[Forbidden] = []

    async def work(session: Session) -> TargetsOut:
        record = await _check_change(
            session, caller, terms, await stored.get_deployment(session, deployment, EVERYTHING)
        )
        answers, refusal = await try_targets(session, caller, record, targets)
        forbidden.extend([refusal] if refusal else [])
        return answers

    response = await answer_dry_run(caller, terms, work)
    for refusal in forbidden:
        await record_refusal(request, refusal.message)
    return response


@router.post("/{deployment}/plan", response_model=PlanOut)
async def plan_deployment(caller: Writer, terms: PostTerms, deployment: Key) -> Response:
    """What a commit would do now, by the code that commits."""

    async def work(session: GraphSession) -> PlanOut:
        plan = await commits.plan_proposal_commit(session, await _lock_and_check(session, caller, terms, deployment))
        return await show_plan(session, caller.server, plan)

    return await write_graph(caller, terms, work)


@router.post("/{deployment}/commit", response_model=PlanOut)
async def commit_deployment(caller: Writer, terms: PostTerms, deployment: Key, body: CommitIn) -> Response:
    """Make the proposal what is wanted from now on. With `digest`: only if that does what the plan you saw said. Where
    disks are wiped that hold data, it needs one: you confirm by it what is lost."""

    async def work(session: GraphSession) -> PlanOut:
        record = await _lock_and_check(session, caller, terms, deployment)
        for deployment_id in await snapshots.select_source_deployments(session, record):
            await caller.authorize(session, deployment_id)  # the commit takes nodes from there
        plan = await commits.commit_proposal(session, record, body.digest, body.comment)
        return await show_plan(session, caller.server, plan)

    return await write_graph(caller, terms, work)


@router.post("/{deployment}/rollback", response_model=RollbackOut)
async def rollback_deployment(caller: Writer, terms: PostTerms, deployment: Key, body: RollbackIn) -> Response:
    """Propose what an earlier snapshot said."""

    async def work(session: GraphSession) -> RollbackOut:
        record = await _lock_and_check(session, caller, terms, deployment)
        rollback = await snapshots.rollback(session, record, body.snapshot)
        return RollbackOut(
            deployment=DeploymentOut.of(await stored.get_deployment(session, record.id, EVERYTHING)),
            not_restorable=[PlaceOut(node=node, role=role) for node, role in rollback.not_restorable],
        )

    return await write_graph(caller, terms, work)


SnapshotId = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


@router.get("/{deployment}/diff", response_model=DifferenceOut)
async def diff_deployment(
    caller: ScopedReader, deployment: Key, old: SnapshotId = None, new: SnapshotId = None
) -> Response:
    """How two snapshots differ: from what is in force to the open proposal, unless you name others."""
    async with caller.read() as (session, visible):
        record = await stored.get_deployment(session, deployment, visible)
        before, after = old or record.head_id, new or record.proposed_id
        if before is None or after is None:
            missing = "nothing in force" if before is None else "no open proposal"
            raise Conflict(
                Rule.NOTHING_COMMITTED if before is None else Rule.NOT_PROPOSED,
                f"Deployment {record.name!r} has {missing} to compare with. Name the snapshots: ?old=ID&new=ID.",
            )
        for id in (before, after):
            await snapshots.check_snapshot_owner(session, record, id, visible)
        return answer(DifferenceOut.of(before, after, await snapshots.diff_snapshots(session, before, after, visible)))
