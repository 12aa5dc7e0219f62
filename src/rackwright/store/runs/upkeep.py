"""The upkeep that every tick does: takeovers, deadlines, retries, and a rolling check of counters and slots.

Counters of unmet parents and candidates of slots are updated by every change. Computing them again here costs little
and means that a mistake stops nothing for long; each repair is counted, and is a defect to be found.
"""

from dataclasses import dataclass

from rackwright.domain.states import ACTIVE
from rackwright.store.db.session import Session
from rackwright.store.graph.transitions import change_unmet_counts
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.slots import find_wrong_slots
from rackwright.store.runs.transaction_end import refresh_touched_slots

COUNTER_SLICE = 2000
SLOT_SLICE = 500
"""Fewer than counters: to compute a slot again is to read all that is bound to its node."""


@dataclass(frozen=True)
class UpkeepCounts:
    """How much a tick did of each kind of upkeep."""

    taken_over: int = 0
    overdue: int = 0
    retried: int = 0
    repaired: int = 0


class Upkeep:
    """Does the upkeep, and remembers how far the rolling checks have come."""

    def __init__(self) -> None:
        self._slot = -(1 << 62)
        self._node_role = 0

    async def tick(self, session: Session) -> UpkeepCounts:
        taken_over = await run_lifecycle.take_over_lost_runs(session)
        overdue = await run_lifecycle.fail_overdue_runs(session)
        retried = await run_lifecycle.retry_due_noderoles(session)
        await run_lifecycle.drop_moot_refreshes(session)
        await refresh_touched_slots(session)
        repaired = await self._repair_slots(session) + await self._repair_counters(session)
        return UpkeepCounts(len(taken_over), len(overdue), retried, repaired)

    async def _repair_slots(self, session: Session) -> int:
        after, wrong = await find_wrong_slots(session, self._slot, SLOT_SLICE)
        self._slot = -(1 << 62) if after is None else after
        session.touch(wrong)
        return len(wrong)

    async def _repair_counters(self, session: Session) -> int:
        rows_of_slice = await session.rows(
            _RECOUNT_SLICE, after=self._node_role, limit=COUNTER_SLICE, active=int(ACTIVE)
        )
        self._node_role = rows_of_slice[-1].id if len(rows_of_slice) == COUNTER_SLICE else 0
        suspect_ids = [row.id for row in rows_of_slice if row.counted != row.unmet]
        if not suspect_ids:
            return 0
        locked = await session.rows(_LOCK_NODEROLES, ids=suspect_ids)
        rows = await session.rows(_RECOUNT, ids=[row.id for row in locked], active=int(ACTIVE))
        wrong = [(row.id, row.counted - row.unmet) for row in rows if row.counted != row.unmet]
        await change_unmet_counts(session, wrong)
        return len(wrong)


# A change of a parent and of its children's counts is one transaction, so the rows agree at every moment: a check needs
# no lock, and makes nobody wait. A repair needs a lock, and a second check of what is locked; a row that another
# transaction holds is checked another time. If one statement locked and counted, a row could be newer than the parents
# that are counted for it, and a right count be "repaired".
_LOCK_NODEROLES = "SELECT id FROM node_roles WHERE id = ANY (:ids) ORDER BY id FOR UPDATE SKIP LOCKED"

_COUNTED = """
SELECT nr.id, nr.unmet, (
    SELECT count(*) FROM node_role_edges e JOIN node_roles p ON p.id = e.parent_id
    WHERE e.child_id = nr.id AND p.state <> :active) AS counted
FROM node_roles nr
"""

_RECOUNT_SLICE = f"{_COUNTED} WHERE nr.id > :after ORDER BY nr.id LIMIT :limit"
_RECOUNT = f"{_COUNTED} WHERE nr.id = ANY (:ids) ORDER BY nr.id"
