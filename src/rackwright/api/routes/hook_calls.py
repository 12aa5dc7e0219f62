"""/api/v2/hook_calls: calls of hooks that failed."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import Field

from rackwright.api.context import ScopedReader, Writer
from rackwright.api.http.answers import Page, Resource
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Id
from rackwright.api.http.writing import PostTerms, write
from rackwright.store.db.session import Session
from rackwright.store.graph.deployments import read_root_id
from rackwright.store.hooks.hook_queue import FAILED_SQL, HOOK_CALLS, FailingHookCall, retry_call, select_calls

router = APIRouter(prefix="/hook_calls", tags=["hook_calls"])


class HookCallOut(Resource):
    """A call of a hook that failed. `waiting` or `running`: it is tried again; `failed`: it was given up."""

    id: int
    kind: str = Field(description="role, or jig for a jig's node method.")
    handler: str = Field(description="The role or jig that is called.")
    hook: str = Field(examples=["on_active"])
    subject: str
    subject_id: int
    name: str
    state: str
    attempts: int
    error: str
    queued_at: datetime
    not_before: datetime | None

    @classmethod
    def of(cls, call: FailingHookCall) -> "HookCallOut":
        return cls(etag=make_etag(call.id, call.state, call.attempts), **asdict(call))


@router.get("", response_model=Page[HookCallOut])
async def list_hook_calls(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(HOOK_CALLS))]
) -> Response:
    """Calls of hooks that failed, the newest first."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, select_calls, HookCallOut, HookCallOut.of, FAILED_SQL)


@router.post("/{id}/retry", status_code=204)
async def retry_hook_call(caller: Writer, terms: PostTerms, id: Id) -> Response:
    """Try again what was given up."""

    async def work(session: Session) -> None:
        deployment_id = await session.value(
            "SELECT n.deployment_id FROM hook_calls h JOIN nodes n ON n.id = h.node_id WHERE h.id = :id", id=id
        )
        await caller.authorize(session, deployment_id or await read_root_id(session))
        await retry_call(session, id)

    return await write(caller, terms, work)
