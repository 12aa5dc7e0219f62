"""/api/v2/deployments"""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Reader, Writer
from rackwright.domain.snapshots import CommitPlan
from rackwright.store import commits, snapshots
from rackwright.store.deployments import (
    DeploymentRecord,
    create_deployment,
    delete_deployment,
    get_deployment,
    list_deployments,
)
from rackwright.store.session import Session

router = APIRouter(prefix="/deployments", tags=["deployments"])


class DeploymentIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(examples=["web"])
    parent: str | None = None
    description: str = Field("", max_length=1000)


class DeploymentOut(BaseModel):
    id: int
    name: str
    description: str
    parent_id: int | None
    system: bool
    held: bool
    head_id: int | None
    proposed_id: int | None
    state: str
    noderoles: dict[str, int]

    @classmethod
    def of(cls, deployment: DeploymentRecord) -> "DeploymentOut":
        return cls(
            id=deployment.id,
            name=deployment.name,
            description=deployment.description,
            parent_id=deployment.parent_id,
            system=deployment.system,
            held=deployment.held,
            head_id=deployment.head_id,
            proposed_id=deployment.proposed_id,
            state=deployment.state,
            noderoles={state.label: count for state, count in deployment.counts.items()},
        )


class PlannedOut(BaseModel):
    id: int
    node: str
    role: str
    because: str


class PlanOut(BaseModel):
    """What a commit would do, or did."""

    digest: str
    created: list[PlannedOut]
    rerun: list[PlannedOut]
    held_back: list[PlannedOut]
    removed: list[PlannedOut]
    moved: list[str]
    wiped: list[str]

    @classmethod
    def of(cls, plan: CommitPlan) -> "PlanOut":
        return cls.model_validate({key: value for key, value in asdict(plan).items() if key != "deployment_id"})


class CommitIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    digest: str | None = None
    comment: str = Field("", max_length=1000)


@router.get("")
async def list_all(caller: Reader) -> list[DeploymentOut]:
    async with caller.server.store.read() as session:
        return [DeploymentOut.of(deployment) for deployment in await list_deployments(session)]


@router.post("", status_code=201)
async def create(caller: Writer, body: DeploymentIn) -> DeploymentOut:
    id = await caller.change(
        lambda session: create_deployment(session, body.name, body.parent, body.description), graph=True
    )
    return await show(caller, str(id))


@router.get("/{deployment}")
async def show(caller: Reader, deployment: str) -> DeploymentOut:
    async with caller.server.store.read() as session:
        return DeploymentOut.of(await get_deployment(session, deployment))


@router.delete("/{deployment}", status_code=204)
async def delete(caller: Writer, deployment: str) -> None:
    await caller.change(lambda session: delete_deployment(session, deployment), graph=True)


@router.post("/{deployment}/propose")
async def propose(caller: Writer, deployment: str) -> DeploymentOut:
    async def work(session: Session) -> int:
        return await snapshots.propose(session, await get_deployment(session, deployment))

    await caller.change(work, graph=True)
    return await show(caller, deployment)


@router.post("/{deployment}/plan")
async def plan(caller: Writer, deployment: str) -> PlanOut:
    async def work(session: Session) -> CommitPlan:
        return await commits.plan(session, await get_deployment(session, deployment))

    return PlanOut.of(await caller.change(work, graph=True))


@router.post("/{deployment}/commit")
async def commit(caller: Writer, deployment: str, body: CommitIn) -> PlanOut:
    async def work(session: Session) -> CommitPlan:
        found = await get_deployment(session, deployment)
        return await commits.commit(session, found, body.digest, body.comment)

    return PlanOut.of(await caller.change(work, graph=True))
