"""Instant runs: claimed, executed and settled in one transaction, so that nobody ever sees them under way.

They are for jigs that do nothing outside of this process (noop), and for noderoles that are handed no more than their
role's defaults; all others are claimed the ordinary way. An instant run leaves what any other run leaves: the run in
the history, each change of state in the outbox, the children updated. If the transaction fails, the run never was.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from rackwright.domain.attributes import StagedInput
from rackwright.domain.hooks import STATE_HOOKS
from rackwright.domain.runs import DEFAULT_DEADLINE, Answer, Outcome, Run
from rackwright.domain.states import TRANSITIONS, Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.pipeline import Cursor, Statement, array
from rackwright.store.db.session import Session
from rackwright.store.graph.run_attribs import stage_defaults
from rackwright.store.graph.transition_sql import event_kind, target_sql
from rackwright.store.graph.transitions import CHANGE_UNMET, EVENT_KINDS, TRACE_OF
from rackwright.store.runs.claim_candidates import LineMember, LineQuery, read_line_members
from rackwright.store.runs.slots import TOUCHED_SETTING, refresh_touched_statements

MAX_LINES, LINE_LENGTH = 125, 8
"""How many nodes one transaction works on, and how far down on each: others wait for what a transaction locks.

Instant runs are executed one after the other, so one place under the cap is enough for them.
"""

LANES = 4
"""While the database writes the runs of one lane, this process executes those of another."""


@dataclass(frozen=True)
class InstantJigs:
    """The jigs whose runs need no time."""

    kinds: Collection[str]
    run: Callable[[Run], Awaitable[Outcome]]
    """Executes a run. It is called within the transaction, and again if the transaction has to be repeated."""

    def jig_names(self, stored: StoredCatalogue) -> list[str]:
        """Return the names of the jigs of these kinds.

        There are none while roles have hooks for states: children then wait until the hooks were called.
        """
        if any(stored.catalogue.roles_with_hook(hook) for hook in STATE_HOOKS.values()):
            return []
        return [name for name, jig in stored.catalogue.jigs.items() if jig.kind in self.kinds]


@dataclass(frozen=True, slots=True)
class InstantRun:
    """A run that was executed, and is to be written."""

    run: Run
    staged: StagedInput
    was_blocked: bool


@dataclass
class InstantProgress:
    """How many instant runs were executed, and whether other work was met."""

    ended: int = 0
    met_other: bool = False
    """Something can start that has to be claimed the ordinary way."""


_EVENTS_PASSED = ", ".join(
    f"({place}, '{event_kind(trigger)}')"
    for place, trigger in enumerate((Trigger.PARENTS_MET, Trigger.CLAIM, Trigger.SUCCEED), start=1)
)
"""The events of the states that each noderole goes through; the first only if the noderole was BLOCKED."""

# Each row is written once, also that of a noderole that was BLOCKED by others of the same batch: a second update of a
# row within one transaction has PostgreSQL check all of its foreign keys again, which costs more than everything else.
# The noderoles are locked already, in an earlier statement: so every edge to their children is seen here, or is added
# by a transaction that waits for this one.
_END = f"""
WITH staged AS MATERIALIZED (
    SELECT CAST(input AS jsonb) AS input, hash, place
    FROM unnest(CAST(:inputs AS text[]), CAST(:hashes AS bytea[])) WITH ORDINALITY AS staged (input, hash, place)
), executed AS MATERIALIZED (
    SELECT executed.id, executed.run_id, executed.was_blocked, executed.turn, staged.input, staged.hash
    FROM unnest(CAST(:ids AS bigint[]), CAST(:runs AS bigint[]), CAST(:places AS int[]), CAST(:blocked AS bool[]))
        WITH ORDINALITY AS executed (id, run_id, place, was_blocked, turn)
    JOIN staged ON staged.place = executed.place
), started AS (
    INSERT INTO runs (id, node_role_id, node_id, slot, jig, state, attempt, inputs_rev, staged, hash, worker,
                      started_at, ended_at, deadline, trace)
    SELECT executed.run_id, nr.id, nr.node_id, CASE WHEN n.system THEN -nr.id ELSE n.id END, r.jig,
           '{Answer.SUCCEEDED}', nr.attempts + 1, nr.inputs_rev, executed.input, executed.hash, :worker,
           now(), now(), coalesce(r.deadline, {DEFAULT_DEADLINE}),
           {TRACE_OF}
    FROM executed JOIN node_roles nr ON nr.id = executed.id JOIN nodes n ON n.id = nr.node_id
    JOIN roles r ON r.id = nr.role_id
), ended AS (
    UPDATE node_roles nr SET state = {target_sql(Trigger.SUCCEED)}, unmet = 0, hash = executed.hash, error = '',
        forced = false, attempts = 0, retry_at = NULL
    FROM executed WHERE nr.id = executed.id
    RETURNING nr.id, nr.node_id, nr.deployment_id, nr.trace, executed.turn, executed.was_blocked
), steps AS (
    SELECT e.child_id AS id, -count(*)::int AS step FROM executed JOIN node_role_edges e ON e.parent_id = executed.id
    WHERE NOT EXISTS (SELECT FROM executed child WHERE child.id = e.child_id)
    GROUP BY e.child_id
), {CHANGE_UNMET}, emitted AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT kind, id, node_id, deployment_id, trace FROM (
        SELECT turn, place, kind, id, node_id, deployment_id, trace
        FROM ended CROSS JOIN (VALUES {_EVENTS_PASSED}) AS passed (place, kind)
        WHERE place > 1 OR was_blocked
        UNION ALL
        SELECT NULL, NULL, {EVENT_KINDS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
    ) happened ORDER BY turn, place, id
)
SELECT (SELECT count(*) FROM ended), set_config('{TOUCHED_SETTING}', CAST(ARRAY(
    SELECT node_id FROM ended UNION SELECT node_id FROM moved WHERE was <> now) AS text), true)
"""


async def execute_instant_runs(
    session: Session, instant: InstantJigs, worker: str, here: int | None
) -> InstantProgress:
    """Execute instant runs, and those that they let start on the same nodes. Needs the cap lock."""
    stored = await session.catalogue()
    jigs = instant.jig_names(stored)
    if not jigs:
        return InstantProgress(met_other=True)
    lanes = [LineQuery(here, MAX_LINES, LINE_LENGTH, jigs, lane, LANES) for lane in range(LANES)]
    progress = InstantProgress()
    async with session.pipe() as pipe:
        queries = [await pipe.send(*lane.statements(stored)) for lane in lanes]
        writes: list[Sequence[Cursor]] = []
        for query in queries:
            [_, rows] = await pipe.fetch_rows(query)
            # From here on the database works on one lane, and this process on another.
            executed = await _LaneExecutor(stored, instant, progress).execute(read_line_members(rows))
            if executed:
                writes.append(await pipe.send(_end_statement(executed, worker), *refresh_touched_statements()))
        for write in writes:
            [[[ended, _]], *_] = await pipe.fetch_rows(write)
            progress.ended += ended
    return progress


class _LaneExecutor:
    """Executes the runs of one lane, in the order in which they could start."""

    def __init__(self, stored: StoredCatalogue, instant: InstantJigs, progress: InstantProgress) -> None:
        self.stored = stored
        self.instant = instant
        self.progress = progress
        self.executed: list[InstantRun] = []
        self.over: set[int] = set()
        """Noderoles whose runs were executed."""
        self.stopped: set[int] = set()
        """Nodes on which the next noderole has to be claimed the ordinary way."""

    async def execute(self, members: Sequence[LineMember]) -> list[InstantRun]:
        for member in members:
            parents_over = sum(parent in self.over for parent in member.parents)
            if member.candidate.node_id in self.stopped or member.unmet > parents_over:
                continue
            run = await self._execute(member)
            if run is None:
                self.stopped.add(member.candidate.node_id)
                self.progress.met_other = True
            else:
                self.executed.append(run)
                self.over.add(member.candidate.id)
        return self.executed

    async def _execute(self, member: LineMember) -> InstantRun | None:
        candidate = member.candidate
        with_defaults = stage_defaults(self.stored, candidate)
        if (
            with_defaults is None
            or member.run_id is None
            or candidate.has_wall
            or (candidate.hash == with_defaults.staged.hash and not candidate.forced)
        ):
            return None
        role = with_defaults.role
        run = Run(
            id=member.run_id,
            node_role_id=candidate.id,
            node_id=candidate.node_id,
            node=candidate.node,
            role=role.name,
            jig=role.jig,
            kind=self.stored.catalogue.jigs[role.jig].kind,
            input=with_defaults.staged.input,
            deadline=role.deadline or DEFAULT_DEADLINE,
            attempt=candidate.attempts + 1,
        )
        outcome = await self.instant.run(run)
        if outcome.answer is not Answer.SUCCEEDED or outcome.wall:
            return None
        return InstantRun(run, with_defaults.staged, member.state in TRANSITIONS[Trigger.PARENTS_MET].sources)


def _end_statement(instant_runs: Sequence[InstantRun], worker: str) -> Statement:
    staged = {
        instant_run.staged.hash: instant_run.staged for instant_run in instant_runs
    }  # most noderoles of a role have the same inputs
    places_of_hashes = {hash: place for place, hash in enumerate(staged, start=1)}
    return _END, {
        "ids": array(instant_run.run.node_role_id for instant_run in instant_runs),
        "runs": array(instant_run.run.id for instant_run in instant_runs),
        "places": array(places_of_hashes[instant_run.staged.hash] for instant_run in instant_runs),
        "blocked": array(instant_run.was_blocked for instant_run in instant_runs),
        "inputs": [json.dumps(inputs.input) for inputs in staged.values()],
        "hashes": list(staged),
        "worker": worker,
    }
