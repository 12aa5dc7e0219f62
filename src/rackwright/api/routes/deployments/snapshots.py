"""/api/v2/snapshots: the time line of each deployment, to be read. /deployments writes it."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from rackwright.api.context import ScopedReader
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Id, JsonMap, mask_secrets
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph import snapshots as stored
from rackwright.store.graph.snapshots import SNAPSHOTS, SnapshotRecord, read_intent, select_snapshots

router = APIRouter(prefix="/snapshots", tags=["snapshots"])


class SnapshotOut(Resource):
    """What was wanted of a deployment at one time: proposed, in force (head), or archived."""

    id: int
    deployment: str
    deployment_id: int
    state: str = Field(description="proposed, head or archived.")
    base_id: int | None = Field(description="The snapshot it was copied from.")
    revision: int = Field(description="How often the proposal was edited.")
    comment: str
    created_at: datetime
    committed_at: datetime | None

    @classmethod
    def of(cls, snapshot: SnapshotRecord) -> "SnapshotOut":
        return cls(etag=_etag(snapshot), **asdict(snapshot))


class RoleDataOut(BaseModel):
    role: str
    data: JsonMap


class BindingOut(BaseModel):
    node: str
    role: str
    data: JsonMap


class SnapshotDetail(SnapshotOut):
    """A snapshot with all that it says."""

    roles: list[RoleDataOut]
    bindings: list[BindingOut]


def _etag(snapshot: SnapshotRecord) -> str:
    return make_etag(snapshot.id, snapshot.revision, snapshot.state, snapshot.comment)


@router.get("", response_model=Page[SnapshotOut])
async def list_snapshots(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(SNAPSHOTS))]
) -> Response:
    """All snapshots, or those that fit, the newest first."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, select_snapshots, SnapshotOut, SnapshotOut.of)


@router.get("/{id}", response_model=SnapshotDetail)
async def get_snapshot(caller: ScopedReader, id: Id, fields: Fields) -> Response:
    """One snapshot, with its bindings and the data of its roles."""
    async with caller.read() as (session, visible):
        return answer(await _read_detail(session, id, visible), fields=fields)


async def _read_detail(session: Session, id: int, visible: Visibility) -> SnapshotDetail:
    snapshot = await stored.get_snapshot(session, id, visible)
    contents = await read_intent(session, id)
    return SnapshotDetail(
        etag=_etag(snapshot),
        **asdict(snapshot),
        roles=[RoleDataOut(role=role, data=mask_secrets(data)) for role, data in sorted(contents.roles.items())],
        bindings=[
            BindingOut(node=node, role=role, data=mask_secrets(data))
            for (node, role), data in sorted(contents.bindings.items())
        ],
    )
