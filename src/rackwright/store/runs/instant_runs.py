"""Runs that need no time: claimed, made and settled in one transaction, so that nobody ever sees them under way.

For jigs that do nothing outside of this process (noop), and noderoles that are handed no more than their role's
defaults; all else goes the ordinary way. What such a run leaves is what any other leaves: the run in the history, each
change of state in the outbox, the children told. If the transaction fails, the run never was.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from rackwright.domain.attributes import Staged
from rackwright.domain.hooks import STATE_HOOKS
from rackwright.domain.runs import DEFAULT_DEADLINE, Answer, Outcome, Run
from rackwright.domain.states import TRANSITIONS, Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.pipeline import Cursor, Statement, array
from rackwright.store.db.session import Session
from rackwright.store.graph.run_attribs import stage_plain
from rackwright.store.graph.transition_sql import event_kind, target_sql
from rackwright.store.graph.transitions import LABELS, STEPPED, TRACE_OF
from rackwright.store.runs.claim_candidates import Lines, Waiting, in_lines
from rackwright.store.runs.slots import TOUCHED, refreshing_touched

LINES, LENGTH = 125, 8
"""How many nodes are worked on together, and how far down on each: what a transaction locks, others wait for.

The runs are made one after the other, so one place under the cap is enough for them."""

LANES = 4
"""While the server writes the runs of one lane, those of another are made here."""


@dataclass(frozen=True)
class AtOnce:
    """The jigs that need no time."""

    kinds: Collection[str]
    run: Callable[[Run], Awaitable[Outcome]]
    """Called within the transaction, and again if that has to be repeated."""

    def jigs(self, stored: StoredCatalogue) -> list[str]:
        """Those of these kinds. None while roles want to be told of states: children then wait until they were."""
        if any(stored.catalogue.hooked(hook) for hook in STATE_HOOKS.values()):
            return []
        return [name for name, jig in stored.catalogue.jigs.items() if jig.kind in self.kinds]


@dataclass(frozen=True, slots=True)
class Made:
    """A run that was made, and is to be written."""

    run: Run
    staged: Staged
    was_blocked: bool


@dataclass
class Ahead:
    """How far it went."""

    ended: int = 0
    met_other: bool = False
    """Something can start that has to go the ordinary way."""


_PASSED = ", ".join(
    f"({place}, '{event_kind(trigger)}')"
    for place, trigger in enumerate((Trigger.PARENTS_MET, Trigger.CLAIM, Trigger.SUCCEED), start=1)
)
"""The states that each goes through, as events; the first only if it was BLOCKED."""

# Each row is written once, also of what was BLOCKED by others of this same batch: a second update of a row within one
# transaction has PostgreSQL check all of its foreign keys again, which costs more than all the rest.
# The noderoles are locked already, in an earlier statement: so every edge to their children is seen here, or is added
# by somebody who waits for this transaction.
_END = f"""
WITH staged AS MATERIALIZED (
    SELECT CAST(input AS jsonb) AS input, hash, place
    FROM unnest(CAST(:inputs AS text[]), CAST(:hashes AS bytea[])) WITH ORDINALITY AS staged (input, hash, place)
), given AS MATERIALIZED (
    SELECT given.id, given.run_id, given.was_blocked, given.turn, staged.input, staged.hash
    FROM unnest(CAST(:ids AS bigint[]), CAST(:runs AS bigint[]), CAST(:places AS int[]), CAST(:blocked AS bool[]))
        WITH ORDINALITY AS given (id, run_id, place, was_blocked, turn)
    JOIN staged ON staged.place = given.place
), started AS (
    INSERT INTO runs (id, node_role_id, node_id, slot, jig, state, attempt, inputs_rev, staged, hash, worker,
                      started_at, ended_at, deadline, trace)
    SELECT given.run_id, nr.id, nr.node_id, CASE WHEN n.system THEN -nr.id ELSE n.id END, r.jig,
           '{Answer.SUCCEEDED}', nr.attempts + 1, nr.inputs_rev, given.input, given.hash, :worker,
           now(), now(), coalesce(r.deadline, {DEFAULT_DEADLINE}),
           {TRACE_OF}
    FROM given JOIN node_roles nr ON nr.id = given.id JOIN nodes n ON n.id = nr.node_id
    JOIN roles r ON r.id = nr.role_id
), ended AS (
    UPDATE node_roles nr SET state = {target_sql(Trigger.SUCCEED)}, unmet = 0, hash = given.hash, error = '',
        forced = false, attempts = 0, retry_at = NULL
    FROM given WHERE nr.id = given.id
    RETURNING nr.id, nr.node_id, nr.deployment_id, nr.trace, given.turn, given.was_blocked
), steps AS (
    SELECT e.child_id AS id, -count(*)::int AS step FROM given JOIN node_role_edges e ON e.parent_id = given.id
    WHERE NOT EXISTS (SELECT FROM given child WHERE child.id = e.child_id)
    GROUP BY e.child_id
), {STEPPED}, told AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT kind, id, node_id, deployment_id, trace FROM (
        SELECT turn, place, kind, id, node_id, deployment_id, trace
        FROM ended CROSS JOIN (VALUES {_PASSED}) AS passed (place, kind)
        WHERE place > 1 OR was_blocked
        UNION ALL SELECT NULL, NULL, {LABELS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
    ) happened ORDER BY turn, place, id
)
SELECT (SELECT count(*) FROM ended), set_config('{TOUCHED}', CAST(ARRAY(
    SELECT node_id FROM ended UNION SELECT node_id FROM moved WHERE was <> now) AS text), true)
"""


async def run_ahead(session: Session, at_once: AtOnce, worker: str, here: int | None) -> Ahead:
    """Make such runs, and those that they let start on the same nodes. Needs the cap lock."""
    stored = await session.catalogue()
    jigs = at_once.jigs(stored)
    if not jigs:
        return Ahead(met_other=True)
    lanes = [Lines(here, LINES, LENGTH, jigs, lane, LANES) for lane in range(LANES)]
    ahead = Ahead()
    async with session.pipe() as pipe:
        picked = [await pipe.send(*lane.statements(stored)) for lane in lanes]
        ending: list[Sequence[Cursor]] = []
        for asked in picked:
            [_, seen] = await pipe.fetch_rows(asked)
            # From here on the server works on one lane, and we on another.
            made = await _Making(stored, at_once, ahead).make(in_lines(seen))
            if made:
                ending.append(await pipe.send(_ending(made, worker), *refreshing_touched()))
        for sent in ending:
            [[[ended, _]], *_] = await pipe.fetch_rows(sent)
            ahead.ended += ended
    return ahead


class _Making:
    """Makes the runs of one lane, in the order in which they could start."""

    def __init__(self, stored: StoredCatalogue, at_once: AtOnce, ahead: Ahead) -> None:
        self.stored = stored
        self.at_once = at_once
        self.ahead = ahead
        self.made: list[Made] = []
        self.over: set[int] = set()
        self.stopped: set[int] = set()
        """Nodes on which something comes next that has to go the ordinary way."""

    async def make(self, waiting: Sequence[Waiting]) -> list[Made]:
        for one in waiting:
            if one.glance.node_id in self.stopped or one.unmet > sum(parent in self.over for parent in one.parents):
                continue
            made = await self._make(one)
            if made is None:
                self.stopped.add(one.glance.node_id)
                self.ahead.met_other = True
            else:
                self.made.append(made)
                self.over.add(one.glance.id)
        return self.made

    async def _make(self, one: Waiting) -> Made | None:
        row = one.glance
        plain = stage_plain(self.stored, row)
        if plain is None or one.run_id is None or row.walled or (row.hash == plain.staged.hash and not row.forced):
            return None
        role = plain.role
        run = Run(
            id=one.run_id,
            node_role_id=row.id,
            node_id=row.node_id,
            node=row.node,
            role=role.name,
            jig=role.jig,
            kind=self.stored.catalogue.jigs[role.jig].kind,
            input=plain.staged.input,
            deadline=role.deadline or DEFAULT_DEADLINE,
            attempt=row.attempts + 1,
        )
        outcome = await self.at_once.run(run)
        if outcome.answer is not Answer.SUCCEEDED or outcome.wall:
            return None
        return Made(run, plain.staged, one.state in TRANSITIONS[Trigger.PARENTS_MET].sources)


def _ending(made: Sequence[Made], worker: str) -> Statement:
    staged = {one.staged.hash: one.staged for one in made}  # most have what others of their role have
    places = {hash: place for place, hash in enumerate(staged, start=1)}
    return _END, {
        "ids": array(one.run.node_role_id for one in made),
        "runs": array(one.run.id for one in made),
        "places": array(places[one.staged.hash] for one in made),
        "blocked": array(one.was_blocked for one in made),
        "inputs": [json.dumps(one.input) for one in staged.values()],
        "hashes": list(staged),
        "worker": worker,
    }
