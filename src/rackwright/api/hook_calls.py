"""/api/v2/hook_calls"""

from dataclasses import asdict
from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel

from rackwright.api.context import Reader, Writer
from rackwright.store.hook_queue import failing_calls, retry_call

router = APIRouter(prefix="/hook_calls", tags=["hook_calls"])


class FailingOut(BaseModel):
    """A call of a hook that failed. `waiting` or `running`: it is tried again; `failed`: it was given up."""

    id: int
    kind: str
    handler: str
    hook: str
    subject: str
    subject_id: int
    name: str
    state: str
    attempts: int
    error: str
    queued_at: datetime
    not_before: datetime | None


@router.get("")
async def list_hook_calls(caller: Reader) -> list[FailingOut]:
    """Hooks that fail, the newest first."""
    async with caller.server.store.read() as session:
        return [FailingOut(**asdict(call)) for call in await failing_calls(session)]


@router.post("/{id}/retry", status_code=204)
async def retry_hook_call(caller: Writer, id: int) -> None:
    """Try again what was given up."""
    await caller.change(lambda session: retry_call(session, id))
