"""/api/v2/anneal"""

from fastapi import APIRouter
from pydantic import BaseModel

from rackwright.annealer.step import step
from rackwright.api.context import Reader, Writer
from rackwright.api.reasons import ReasonOut
from rackwright.store.noderoles import counts_by_state

router = APIRouter(prefix="/anneal", tags=["anneal"])


class RanOut(BaseModel):
    run_id: int
    node: str
    role: str
    outcome: str
    error: str


class HookOut(BaseModel):
    handler: str
    hook: str
    error: str


class StepOut(BaseModel):
    """What one pass did, and what waits for what."""

    ran: list[RanOut]
    unchanged: list[int]
    hooks: list[HookOut]
    hooks_waiting: int
    waiting: list[ReasonOut]


class StatusOut(BaseModel):
    noderoles: dict[str, int]
    cap: int


@router.get("")
async def get_anneal_status(caller: Reader) -> StatusOut:
    async with caller.server.store.read() as session:
        counts = await counts_by_state(session)
    return StatusOut(noderoles={state.label: count for state, count in counts.items()}, cap=caller.server.cap)


@router.post("/step")
async def anneal_step(caller: Writer, node_role: int | None = None) -> StepOut:
    """One pass by hand, or just one noderole."""
    server = caller.server
    report = await step(
        server.store, server.jigs, server.claimant, server.cap, caller.principal.name, node_role, server.hooks
    )
    return StepOut(
        ran=[
            RanOut(
                run_id=one.run.id,
                node=one.run.node,
                role=one.run.role,
                outcome=one.outcome.answer,
                error=one.outcome.error,
            )
            for one in report.ran
        ],
        unchanged=report.unchanged,
        hooks=[HookOut(handler=one.call.handler, hook=one.call.hook, error=one.error) for one in report.hooks],
        hooks_waiting=report.hooks_waiting,
        waiting=[ReasonOut.of(reason) for reason in report.waiting],
    )
