"""Runs several states as one unit: decides and checks them one by one, then applies them in a single batch.

Each state has its own record. Where the batch fails, the failed states are tried alone, so that one bad package does
not make the others fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Generator, List, NamedTuple, Tuple

from ..combine import State
from ..module import Arguments, Check, Result
from .call import BlockingCall, Request, record_of_result
from .decision import Decision
from .record import Record, StateOutcome

if TYPE_CHECKING:
    from .execution import PlanExecution


class _Member(NamedTuple):
    """A state of the unit that has begun."""

    vertex: int
    state: State
    decision: Decision
    sequence: int
    started: float


def run_unit(execution: "PlanExecution", vertices: List[int]) -> Generator[Request, Any, None]:
    """Apply the states of these vertices at once where that is possible, and one by one where it is not."""
    function = execution.plan.schemas[vertices[0]].function
    changing: List[Tuple[_Member, Arguments, Check]] = []
    reactions: Dict[Tuple[Any, ...], Record] = {}
    for vertex in vertices:
        member = _begin_member(execution, vertex)
        if member.decision is not Decision.RUN and member.decision is not Decision.REACT:
            record = execution.record_of_held_back(vertex, member.state, member.decision)
            execution.finish(vertex, member.state, record, member.sequence, member.started, ran=False)
        elif function.batch is None or execution.test or not _can_be_batched(execution, member.state):
            yield from _run_alone(execution, member, reactions)
        else:
            yield from _check_member(execution, member, changing, reactions)
    if not changing:
        return
    batch = function.batch
    assert batch is not None
    if len(changing) == 1 and changing[0][0].vertex not in execution.schedule.batched:
        yield from _run_alone(execution, changing[0][0], reactions)
        return
    results = yield from _apply_batch(execution, changing)
    for (member, _, check), result in zip(changing, results):
        if result.ok:
            outputs = {**check.outputs, **result.outputs}
            record = record_of_result(member.state, Result(True, result.changes, result.comment, outputs))
            yield from _finish_member(execution, member, record, reactions)
        else:
            yield from _run_alone(execution, member, reactions)


def _begin_member(execution: "PlanExecution", vertex: int) -> _Member:
    state = execution.plan.states[execution.plan.graph.owner[vertex]]
    decision = execution.decide(vertex)
    sequence, started = execution.begin(state)
    return _Member(vertex, state, decision, sequence, started)


def _can_be_batched(execution: "PlanExecution", state: State) -> bool:
    """Return whether a state can be batched: conditions, retries and outputs of others need the ordinary call."""
    special_options = ("unless", "onlyif", "creates", "check_cmd", "retry")
    return (
        not any(option in state.options for option in special_options) and state.index not in execution.plan.filled_late
    )


def _check_member(
    execution: "PlanExecution",
    member: _Member,
    changing: List[Tuple[_Member, Arguments, Check]],
    reactions: Dict[Tuple[Any, ...], Record],
) -> Generator[Request, Any, None]:
    try:
        check = yield from execution.caller.check(member.state)
    except Exception:  # noqa: BLE001 - the ordinary call meets the same error, and makes a record of it
        yield from _run_alone(execution, member, reactions)
        return
    if check.changes:
        changing.append((member, member.state.arguments, check))
    else:
        record = record_of_result(member.state, Result(True, {}, check.comment, check.outputs))
        yield from _finish_member(execution, member, record, reactions)


def _apply_batch(
    execution: "PlanExecution", changing: List[Tuple[_Member, Arguments, Check]]
) -> Generator[Request, Any, List[Result]]:
    state = changing[0][0].state
    batch = execution.plan.schemas[state.index].function.batch
    assert batch is not None
    context = execution.context(state)
    batch_arguments = [arguments for _, arguments, _ in changing]
    try:
        results: List[Result] = yield BlockingCall(lambda: batch(batch_arguments, context))
    except Exception as error:  # noqa: BLE001 - a batch that raises has failed for all, and each is tried alone
        results = [Result(False, {}, str(error)) for _ in changing]
    if len(results) != len(changing):
        results = [Result(False, {}, "the batch did not answer for each state") for _ in changing]
    return results


def _run_alone(
    execution: "PlanExecution", member: _Member, reactions: Dict[Tuple[Any, ...], Record]
) -> Generator[Request, Any, None]:
    record = yield from execution.caller.call(member.state, execution.test)
    yield from _finish_member(execution, member, record, reactions)


def _finish_member(
    execution: "PlanExecution", member: _Member, record: Record, reactions: Dict[Tuple[Any, ...], Record]
) -> Generator[Request, Any, None]:
    """Finish a member; all members that watch for the same resource share one reaction."""
    state = member.state
    if member.decision is Decision.REACT and not record.changes and not record.skipped_by_condition:
        key = tuple(execution.plan.resources.get(state.index, ()))
        earlier = reactions.get(key) if key else None
        if earlier is not None:
            from .execution import copy_record

            record = copy_record(state, earlier)
        else:
            record = yield from execution.react_if_watching(member.vertex, state, member.decision, record)
            if key and record.outcome is not StateOutcome.FAILED:
                reactions[key] = record
    execution.finish(member.vertex, state, record, member.sequence, member.started)
