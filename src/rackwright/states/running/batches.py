"""Several states brought about as one unit: judged and checked one by one, then applied in a single batch.

Each keeps its own record. Where the batch fails, the failed ones are tried alone, so that one bad package does not take
the others with it.
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
    node: int
    state: State
    verdict: Decision
    sequence: int
    started: float


def run_unit(run: "PlanExecution", nodes: List[int]) -> Generator[Request, Any, None]:
    """Bring the states of these nodes about at once, where that is possible, and one by one where it is not."""
    function = run.plan.schemas[nodes[0]].function
    due: List[Tuple[_Member, Arguments, Check]] = []
    answered: Dict[Tuple[Any, ...], Record] = {}
    for node in nodes:
        member = _begin_member(run, node)
        if member.verdict is not Decision.RUN and member.verdict is not Decision.REACT:
            record = run.kept_back(node, member.state, member.verdict)
            run.finish(node, member.state, record, member.sequence, member.started, ran=False)
        elif function.batch is None or run.test or not _has_plain_call(run, member.state):
            yield from _run_alone(run, member, answered)
        else:
            yield from _check_member(run, member, due, answered)
    if not due:
        return
    batch = function.batch
    assert batch is not None
    if len(due) == 1 and due[0][0].node not in run.schedule.batched:
        yield from _run_alone(run, due[0][0], answered)
        return
    results = yield from _apply_batch(run, due)
    for (member, _, check), result in zip(due, results):
        if result.ok:
            outputs = {**check.outputs, **result.outputs}
            record = record_of_result(member.state, Result(True, result.changes, result.comment, outputs))
            yield from _finish_member(run, member, record, answered)
        else:
            yield from _run_alone(run, member, answered)


def _begin_member(run: "PlanExecution", node: int) -> _Member:
    state = run.plan.states[run.plan.graph.owner[node]]
    verdict = run.judge(node)
    sequence, started = run.begin(state)
    return _Member(node, state, verdict, sequence, started)


def _has_plain_call(run: "PlanExecution", state: State) -> bool:
    """Conditions, retries and outputs of others are worked out by the ordinary call."""
    special = ("unless", "onlyif", "creates", "check_cmd", "retry")
    return not any(option in state.options for option in special) and state.index not in run.plan.filled_late


def _check_member(
    run: "PlanExecution",
    member: _Member,
    due: List[Tuple[_Member, Arguments, Check]],
    answered: Dict[Tuple[Any, ...], Record],
) -> Generator[Request, Any, None]:
    try:
        check = yield from run.caller.check(member.state)
    except Exception:  # noqa: BLE001 - the ordinary call meets the same error, and makes a record of it
        yield from _run_alone(run, member, answered)
        return
    if check.changes:
        due.append((member, member.state.arguments, check))
    else:
        record = record_of_result(member.state, Result(True, {}, check.comment, check.outputs))
        yield from _finish_member(run, member, record, answered)


def _apply_batch(
    run: "PlanExecution", due: List[Tuple[_Member, Arguments, Check]]
) -> Generator[Request, Any, List[Result]]:
    state = due[0][0].state
    batch = run.plan.schemas[state.index].function.batch
    assert batch is not None
    context = run.context(state)
    wanted = [arguments for _, arguments, _ in due]
    try:
        results: List[Result] = yield BlockingCall(lambda: batch(wanted, context))
    except Exception as error:  # noqa: BLE001 - a batch that raises has failed for all, and each is tried alone
        results = [Result(False, {}, str(error)) for _ in due]
    if len(results) != len(due):
        results = [Result(False, {}, "the batch did not answer for each state") for _ in due]
    return results


def _run_alone(
    run: "PlanExecution", member: _Member, answered: Dict[Tuple[Any, ...], Record]
) -> Generator[Request, Any, None]:
    record = yield from run.caller.call(member.state, run.test)
    yield from _finish_member(run, member, record, answered)


def _finish_member(
    run: "PlanExecution", member: _Member, record: Record, answered: Dict[Tuple[Any, ...], Record]
) -> Generator[Request, Any, None]:
    """One reaction for all members that watch on behalf of the same resource."""
    state = member.state
    if member.verdict is Decision.REACT and not record.changes and not record.unanswered:
        key = tuple(run.plan.resources.get(state.index, ()))
        known = answered.get(key) if key else None
        if known is not None:
            from .execution import copy_record

            record = copy_record(state, known)
        else:
            record = yield from run.reacted(member.node, state, member.verdict, record)
            if key and record.outcome is not StateOutcome.FAILED:
                answered[key] = record
    run.finish(member.node, state, record, member.sequence, member.started)
