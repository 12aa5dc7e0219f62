"""/api/v2/anneal: the state of the work, one pass of it by hand, and the cap on runs at once."""

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.annealer.run_cap import DEFAULT_CAP, MAX_CAP
from rackwright.annealer.step import StepReport, step
from rackwright.api.context import ScopedReader, Writer
from rackwright.api.http.answers import Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.writing import EditTerms, PostTerms, find_replay, write
from rackwright.api.waiting_reasons import ReasonOut, cap_in_force
from rackwright.store.db.session import Session
from rackwright.store.graph.deployments import read_root_id
from rackwright.store.graph.noderoles import count_by_state
from rackwright.store.runs.run_lifecycle import count_open_runs
from rackwright.store.settings import read_setting, write_setting

router = APIRouter(prefix="/anneal", tags=["anneal"])

Cap = int | Literal["auto"]


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
    unchanged: list[int] = Field(description="Noderoles whose inputs are those of their last success.")
    hooks: list[HookOut]
    hooks_waiting: int
    waiting: list[ReasonOut]


class StepIn(BaseModel):
    """Which noderole to run."""

    model_config = ConfigDict(extra="forbid")

    node_role: int | None = Field(None, ge=1, le=2**63 - 1, description="Just this one; none: whatever can run.")


class StatusOut(BaseModel):
    noderoles: dict[str, int] = Field(description="How many are in which state.", examples=[{"active": 40, "todo": 2}])
    runs: dict[str, int] = Field(description="Runs that are not over, by state.", examples=[{"running": 2}])
    cap: Cap


class CapIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cap: Annotated[int, Field(ge=1, le=MAX_CAP)] | Literal["auto"] = Field(
        description="How many runs may execute at once; auto: found out by itself.", examples=[10]
    )


class CapOut(Resource):
    """How many runs may execute at once."""

    cap: Cap = Field(examples=["auto"])

    @classmethod
    def now(cls, cap: Cap) -> "CapOut":
        return cls(etag=make_etag(cap), cap=cap)


async def _read_cap(session: Session) -> Cap:
    return await read_setting(session, "cap", DEFAULT_CAP)


@router.get("", response_model=StatusOut)
async def get_anneal_status(caller: ScopedReader) -> Response:
    """How many noderoles are in which state, what runs, and the cap."""
    async with caller.read() as (session, visible):
        counts = await count_by_state(session, visible)
        runs = await count_open_runs(session, visible)
        cap = await _read_cap(session)
    noderoles = {state.label: count for state, count in counts.items()}
    return answer(StatusOut(noderoles=noderoles, runs=runs, cap=cap))


@router.get("/cap", response_model=CapOut)
async def get_anneal_cap(caller: ScopedReader) -> Response:
    """How many runs may execute at once."""
    async with caller.read() as (session, visible):
        visible.mark_public()
        return answer(CapOut.now(await _read_cap(session)))


@router.put("/cap", response_model=CapOut)
async def set_anneal_cap(caller: Writer, terms: EditTerms, body: CapIn) -> Response:
    """Set how many runs may execute at once, from now on and on all servers."""

    async def work(session: Session) -> CapOut:
        await caller.authorize(session, await read_root_id(session))
        await session.run("LOCK TABLE settings IN SHARE ROW EXCLUSIVE MODE")  # there may be no row to lock yet
        terms.check(CapOut.now(await _read_cap(session)), "the cap")
        await write_setting(session, "cap", body.cap)
        return CapOut.now(body.cap)

    return await write(caller, terms, work)


@router.post("/step", response_model=StepOut)
async def anneal_step(caller: Writer, terms: PostTerms, body: StepIn | None = None) -> Response:
    """One pass by hand, or just one noderole. Answers when what it started is over."""
    replay = await find_replay(caller, terms)
    if replay is not None:
        return replay

    async def check(session: Session) -> int:
        await caller.authorize(session, await read_root_id(session))
        return await cap_in_force(session) or DEFAULT_CAP

    cap = await caller.change(check)
    server = caller.server
    node_role_id = None if body is None else body.node_role
    report = await step(
        server.store, server.jigs, server.claimant, cap, caller.principal.name, node_role_id, server.hooks
    )

    async def make_answer(_: Session) -> StepOut:
        return _step_out(report)

    return await write(caller, terms, make_answer)


def _step_out(report: StepReport) -> StepOut:
    return StepOut(
        ran=[
            RanOut(
                run_id=ran.run.id,
                node=ran.run.node,
                role=ran.run.role,
                outcome=ran.outcome.answer,
                error=ran.outcome.error,
            )
            for ran in report.ran
        ],
        unchanged=report.unchanged,
        hooks=[HookOut(handler=hook.call.handler, hook=hook.call.hook, error=hook.error) for hook in report.hooks],
        hooks_waiting=report.hooks_waiting,
        waiting=[ReasonOut.of(reason) for reason in report.waiting],
    )
