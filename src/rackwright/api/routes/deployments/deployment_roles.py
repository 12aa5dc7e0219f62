"""/api/v2/deployment_roles: what people want of a role in a whole deployment."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Id, JsonMap, mask_secrets
from rackwright.api.http.writing import EditTerms, PostTerms, Terms, write, write_graph
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import deployment_roles as stored
from rackwright.store.graph import snapshots
from rackwright.store.graph.deployment_roles import DEPLOYMENT_ROLES, DeploymentRoleRecord, select_deployment_roles
from rackwright.store.graph.deployments import get_deployment, lock_deployment
from rackwright.store.graph.noderole_views import visible_noderoles

router = APIRouter(prefix="/deployment_roles", tags=["deployment_roles"])


class DeploymentRoleIn(BaseModel):
    """A role for a deployment, to set its data before anything is bound."""

    model_config = ConfigDict(extra="forbid")

    deployment: str = Field(max_length=63, examples=["web"])
    role: str = Field(max_length=63, examples=["provisioner-os-install"])


class DeploymentRoleEdit(BaseModel):
    """What people change of a role in a deployment."""

    model_config = ConfigDict(extra="forbid")

    data: JsonMap


class DeploymentRoleOut(Resource):
    """A role in a deployment, with what is wanted of it there."""

    id: int
    deployment: str
    deployment_id: int
    role: str
    role_id: int
    template: JsonMap = Field(description="What the role says by itself.")
    wall: JsonMap = Field(description="What its hooks set.")
    data: JsonMap = Field(description="What people want: in the open proposal if there is one.")
    committed_data: JsonMap = Field(description="The same as committed, which is what is in force.")
    leaving: bool = Field(description="Taken out in the open proposal: it goes when that is committed.")

    @classmethod
    def of(cls, record: DeploymentRoleRecord) -> "DeploymentRoleOut":
        return cls(
            etag=make_etag(record.id, record.data, record.committed_data, record.leaving),
            id=record.id,
            deployment=record.deployment,
            deployment_id=record.deployment_id,
            role=record.role,
            role_id=record.role_id,
            template=mask_secrets(record.template),
            wall=mask_secrets(record.wall),
            data=mask_secrets(record.data),
            committed_data=mask_secrets(record.committed_data),
            leaving=record.leaving,
        )


class AffectedNodeRole(BaseModel):
    id: int
    node: str
    role: str
    because: str


class AffectedOut(BaseModel):
    """What a change of a role's data in a deployment makes run again."""

    at_once: bool = Field(description="Such a change is in force as it is made; else when the proposal is committed.")
    rerun: list[AffectedNodeRole]
    others: int = Field(description="How many more, in deployments that you may not see.")


class GoingOut(BaseModel):
    id: int
    node: str
    role: str


class RemovedOut(BaseModel):
    """What leaves a deployment with one of its roles."""

    role: str
    noderoles: list[GoingOut] = Field(description="Its noderoles in the deployment, and what stands on those.")
    at_once: bool = Field(description="It was only proposed and is gone; else it goes when the proposal is committed.")


@router.get("", response_model=Page[DeploymentRoleOut])
async def list_deployment_roles(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(DEPLOYMENT_ROLES))]
) -> Response:
    """All roles of all deployments, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(
            session, visible, query, select_deployment_roles, DeploymentRoleOut, DeploymentRoleOut.of
        )


@router.post("", status_code=201, response_model=DeploymentRoleOut)
async def add_deployment_role(caller: Writer, terms: PostTerms, body: DeploymentRoleIn) -> Response:
    """Give a deployment a role in its open proposal, to set the role's data before anything is bound."""

    async def work(session: Session) -> DeploymentRoleOut:
        deployment = await lock_deployment(session, body.deployment)
        await caller.authorize(session, deployment.id)
        await snapshots.add_role(session, deployment, body.role)
        return DeploymentRoleOut.of(await stored.find_deployment_role(session, deployment.id, body.role))

    return await write_graph(caller, terms, work, status=201, location=_location)


def _location(created: BaseModel) -> str:
    assert isinstance(created, DeploymentRoleOut)
    return f"/api/v2/deployment_roles/{created.id}"


@router.get("/{id}", response_model=DeploymentRoleOut)
async def get_deployment_role(caller: ScopedReader, id: Id, fields: Fields) -> Response:
    """A role in a deployment."""
    async with caller.read() as (session, visible):
        return answer(DeploymentRoleOut.of(await stored.get_deployment_role(session, id, visible)), fields=fields)


@router.get("/{id}/affected", response_model=AffectedOut)
async def get_affected(caller: ScopedReader, id: Id) -> Response:
    """A dry run of a change: what runs again when other data of the role comes in force. In the system deployment that
    is at once."""
    async with caller.read() as (session, visible):
        record = await stored.get_deployment_role(session, id, visible)
        is_system = (await get_deployment(session, record.deployment_id, visible)).system
        reruns = await stored.plan_reruns(session, record)
        visible_ids = await visible_noderoles(session, [line.id for line in reruns], visible)
    shown = [AffectedNodeRole(**asdict(line)) for line in reruns if line.id in visible_ids]
    return answer(AffectedOut(at_once=is_system, rerun=shown, others=len(reruns) - len(shown)))


async def _lock_and_check(session: Session, caller: Caller, terms: Terms, id: int) -> DeploymentRoleRecord:
    """Return the deployment-role, with its deployment locked: nobody else edits that until this transaction ends.

    Refuse a caller who may not write there, or who saw another version.
    """
    record = await stored.get_deployment_role(session, id, EVERYTHING)
    await lock_deployment(session, record.deployment_id)
    await caller.authorize(session, record.deployment_id)
    record = await stored.get_deployment_role(session, id, EVERYTHING)
    terms.check(DeploymentRoleOut.of(record), f"{record.role} in {record.deployment}")
    return record


@router.patch(
    "/{id}",
    response_model=DeploymentRoleOut,
    openapi_extra=patch_body(DeploymentRoleEdit, {"data": {"provisioner": {"target_os": "debian-12"}}}),
)
async def update_deployment_role(caller: Writer, terms: EditTerms, id: Id, request: Request) -> Response:
    """Change what people want of the role in this deployment: in the open proposal, and in force once that is
    committed. In the system deployment it is in force at once."""
    patch = await read_patch(request)

    async def work(session: Session) -> DeploymentRoleOut:
        record = await _lock_and_check(session, caller, terms, id)
        edit = patch.apply(DeploymentRoleEdit.model_construct(data=record.data))
        return DeploymentRoleOut.of(await stored.edit_deployment_role_data(session, record, edit.data))

    return await write(caller, terms, work)


@router.delete("/{id}", response_model=RemovedOut)
async def remove_deployment_role(caller: Writer, terms: EditTerms, id: Id) -> Response:
    """Take a role out of a deployment in its open proposal, with its noderoles there and what stands on those; a 409
    names what stands on them elsewhere. What is only proposed is gone at once; what is committed goes when the
    proposal is committed, and the role's hook `on_deployment_delete` may refuse it then."""

    async def work(session: GraphSession) -> RemovedOut:
        record = await _lock_and_check(session, caller, terms, id)
        deployment = await get_deployment(session, record.deployment_id, EVERYTHING)
        removed = await snapshots.remove_role(session, deployment, record.role)
        remaining = await select_deployment_roles(session, "WHERE dr.id = :id", id=id)
        return RemovedOut(
            role=record.role,
            noderoles=[GoingOut(id=noderole.id, node=noderole.node, role=noderole.role) for noderole in removed],
            at_once=not remaining,
        )

    return await write_graph(caller, terms, work)
