"""Runs that need no time: claimed, made and settled in one transaction, so that nobody ever sees them under way.

For jigs that do nothing outside of this process (noop), and noderoles that are handed no more than their role's
defaults; all else goes the ordinary way. What such a run leaves is what any other leaves: the run in the history, each
change of state in the outbox, the children told. If the transaction fails, the run never was.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

from rackwright.domain.attributes import Staged
from rackwright.domain.hooks import STATE_HOOKS
from rackwright.domain.runs import DEFAULT_DEADLINE, HOLDS_SLOT, Answer, Outcome, Run
from rackwright.domain.states import ACTIVE, TRANSITION
from rackwright.store.catalogue import StoredCatalogue
from rackwright.store.picking import Picking, picked
from rackwright.store.session import Asked, Cursor, Pipe, Session, array
from rackwright.store.slots import TOUCHED, refreshing_touched
from rackwright.store.staging import Glance, stage_plain
from rackwright.store.transitions import LABELS, STEPPED, TRACE_OF

ENOUGH = 1000
"""Runs within one transaction: what it locks, others wait for."""

LANES = 2
"""While the server writes the runs of one lane, those of another are made here."""

BATCH = 250
"""Runs that are written together. They are made one after the other, so one place under the cap is enough for them."""

_HOLDS = ", ".join(f"'{state}'" for state in sorted(HOLDS_SLOT))


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


@dataclass(frozen=True)
class Made:
    """A run that was made, and is to be written."""

    run: Run
    staged: Staged


@dataclass
class Ahead:
    """How far it went."""

    ended: int = 0
    met_other: bool = False
    """Something can start that has to go the ordinary way."""


# The noderoles are locked already, in an earlier statement: so every edge to their children is seen here, or is added
# by somebody who waits for this transaction. No claimed one is another's child: those that can run have ACTIVE parents.
_END = f"""
WITH given AS (
    SELECT given.id, given.run_id, CAST(staged.input AS jsonb) AS staged, staged.hash
    FROM unnest(CAST(:ids AS bigint[]), CAST(:runs AS bigint[]), CAST(:places AS int[])) AS given (id, run_id, place)
    JOIN unnest(CAST(:inputs AS text[]), CAST(:hashes AS bytea[])) WITH ORDINALITY AS staged (input, hash, place)
        ON staged.place = given.place
), started AS (
    INSERT INTO runs (id, node_role_id, node_id, slot, jig, state, attempt, inputs_rev, staged, hash, worker,
                      started_at, ended_at, deadline, trace)
    SELECT given.run_id, nr.id, nr.node_id, CASE WHEN n.system THEN -nr.id ELSE n.id END, r.jig,
           '{Answer.SUCCEEDED}', nr.attempts + 1, nr.inputs_rev, given.staged, given.hash, :worker,
           now(), now(), coalesce(r.deadline, {DEFAULT_DEADLINE}),
           {TRACE_OF}
    FROM given JOIN node_roles nr ON nr.id = given.id JOIN nodes n ON n.id = nr.node_id
    JOIN roles r ON r.id = nr.role_id
    WHERE NOT EXISTS (SELECT FROM runs other WHERE other.state IN ({_HOLDS})
                      AND other.slot = CASE WHEN n.system THEN -nr.id ELSE n.id END)
    RETURNING node_role_id, hash
), ended AS (
    UPDATE node_roles nr SET state = {int(ACTIVE)}, hash = started.hash, error = '', forced = false, attempts = 0,
        retry_at = NULL
    FROM started WHERE nr.id = started.node_role_id RETURNING nr.id, nr.node_id, nr.deployment_id, nr.trace
), steps AS (
    SELECT e.child_id AS id, -count(*)::int AS step FROM ended JOIN node_role_edges e ON e.parent_id = ended.id
    GROUP BY e.child_id
), {STEPPED}, told AS (
    INSERT INTO events (kind, subject_id, node_id, deployment_id, trace)
    SELECT kind, id, node_id, deployment_id, trace FROM (
        SELECT 1 AS place, 'noderole.{TRANSITION.label}' AS kind, id, node_id, deployment_id, trace FROM ended
        UNION ALL SELECT 2, 'noderole.{ACTIVE.label}', id, node_id, deployment_id, trace FROM ended
        UNION ALL SELECT 3, {LABELS}[now + 1], id, node_id, deployment_id, trace FROM moved WHERE was <> now
    ) happened ORDER BY place, id
)
SELECT (SELECT count(*) FROM ended), set_config('{TOUCHED}', CAST(ARRAY(
    SELECT node_id FROM ended UNION SELECT node_id FROM moved WHERE was <> now) AS text), true)
"""


async def run_ahead(session: Session, at_once: AtOnce, worker: str, here: int | None) -> Ahead:
    """Make such runs, and those that they let start, for as long as there is nothing else that can start."""
    stored = await session.catalogue()
    jigs = at_once.jigs(stored)
    if not jigs:
        return Ahead(met_other=True)
    picking = Picking(here, BATCH, lanes=LANES, instant=jigs)
    async with session.pipe() as pipe:
        return await _Run(session, pipe, stored, at_once, worker, picking).to_the_end()


@dataclass(frozen=True)
class _Flying:
    """What a lane has asked and has no answer to yet."""

    lane: Picking
    made: Sequence[Made]
    picks: bool
    asked: Sequence[Cursor]


class _Run:
    """One go through the lanes."""

    def __init__(
        self, session: Session, pipe: Pipe, stored: StoredCatalogue, at_once: AtOnce, worker: str, picking: Picking
    ) -> None:
        self.session = session
        self.pipe = pipe
        self.stored = stored
        self.at_once = at_once
        self.worker = worker
        self.picking = picking
        self.ahead = Ahead()
        self.made = 0

    @property
    def stopping(self) -> bool:
        return self.ahead.met_other or self.made >= ENOUGH

    async def to_the_end(self) -> Ahead:
        lanes = (replace(self.picking, lane=lane) for lane in range(self.picking.lanes))
        ready: deque[tuple[Picking, Sequence[Made]]] = deque((lane, ()) for lane in lanes)
        flying: _Flying | None = None
        while ready or flying:
            landed, flying = flying, None
            found = await self._land(landed) if landed else []
            if ready:
                flying = await self._send(*ready.popleft())
            # From here on the server works on the one lane, and we on the other.
            if landed and found and not self.stopping and (made := await self._make(found)):
                ready.append((replace(landed.lane, cohort=found[-1].cohort, after=found[-1].id), made))
        return self.ahead

    async def _send(self, lane: Picking, made: Sequence[Made]) -> _Flying:
        ending = (_ending(made, self.worker), *refreshing_touched()) if made else ()
        picks = not self.stopping
        return _Flying(
            lane, made, picks, await self.pipe.ask(*ending, *(lane.statements(self.stored) if picks else ()))
        )

    async def _land(self, flying: _Flying) -> list[Glance]:
        """What the lane can run next."""
        answers = await self.pipe.answers(flying.asked)
        if flying.made:
            [[ended, _]] = answers[0]
            self.ahead.ended += ended
            if ended < len(flying.made):
                # A slot was not free after all: it is worked out again, and the ordinary way knows what to do.
                self.session.touch(one.run.node_id for one in flying.made)
                self.ahead.met_other = True
        return picked(*answers[-2:]) if flying.picks else []

    async def _make(self, found: Sequence[Glance]) -> list[Made]:
        jigs = self.stored.catalogue.jigs
        made = []
        for row in found:
            plain = stage_plain(self.stored, row)
            if plain is None or row.run_id is None or row.walled or (row.hash == plain.staged.hash and not row.forced):
                self.ahead.met_other = True
                continue
            role = plain.role
            run = Run(
                id=row.run_id,
                node_role_id=row.id,
                node_id=row.node_id,
                node=row.node,
                role=role.name,
                jig=role.jig,
                kind=jigs[role.jig].kind,
                input=plain.staged.input,
                deadline=role.deadline or DEFAULT_DEADLINE,
                attempt=row.attempts + 1,
            )
            outcome = await self.at_once.run(run)
            if outcome.answer is not Answer.SUCCEEDED or outcome.wall:
                self.ahead.met_other = True
                continue
            made.append(Made(run, plain.staged))
        self.made += len(made)
        return made


def _ending(made: Sequence[Made], worker: str) -> Asked:
    staged = {one.staged.hash: one.staged for one in made}  # most have what others of their role have
    places = {hash: place for place, hash in enumerate(staged, start=1)}
    return _END, {
        "ids": array(one.run.node_role_id for one in made),
        "runs": array(one.run.id for one in made),
        "places": array(places[one.staged.hash] for one in made),
        "inputs": [json.dumps(one.input) for one in staged.values()],
        "hashes": list(staged),
        "worker": worker,
    }
