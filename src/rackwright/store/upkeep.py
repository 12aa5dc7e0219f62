"""What every tick does: takeovers, deadlines, retries; and a rolling look at whether counters and slots are true.

Counters of unmet parents and candidates of slots are kept by every change. Re-deriving them here costs little and
means that a mistake stops nothing for long; each repair is counted, and is a defect to be found.
"""

from dataclasses import dataclass

from rackwright.domain.states import ACTIVE
from rackwright.store import run_life
from rackwright.store.session import Session
from rackwright.store.slots import check_slots
from rackwright.store.transitions import step_children

SLICE = 2000
SLOTS = 500
"""Fewer at a time: to re-derive a slot is to look at all that is bound to its node."""


@dataclass(frozen=True)
class Done:
    taken_over: int = 0
    overdue: int = 0
    retried: int = 0
    repaired: int = 0


class Upkeep:
    """Remembers how far the rolling checks have come."""

    def __init__(self) -> None:
        self._slot = -(1 << 62)
        self._node_role = 0

    async def tick(self, session: Session) -> Done:
        taken_over = await run_life.take_over(session)
        overdue = await run_life.end_overdue(session)
        retried = await run_life.retry_due(session)
        await run_life.drop_moot_refreshes(session)
        await session.settle_slots()
        repaired = await self._repair_slots(session) + await self._repair_counters(session)
        return Done(len(taken_over), len(overdue), retried, repaired)

    async def _repair_slots(self, session: Session) -> int:
        after, wrong = await check_slots(session, self._slot, SLOTS)
        self._slot = -(1 << 62) if after is None else after
        session.touch(wrong)
        return len(wrong)

    async def _repair_counters(self, session: Session) -> int:
        slice = await session.rows(_LOCK_SLICE, after=self._node_role, limit=SLICE)
        self._node_role = slice[-1].id if len(slice) == SLICE else 0
        rows = await session.rows(_RECOUNT, ids=[row.id for row in slice], active=int(ACTIVE))
        wrong = [(row.id, row.counted - row.unmet) for row in rows if row.counted != row.unmet]
        await step_children(session, wrong)
        return len(wrong)


# The rows are locked, so that nobody counts while we do; what somebody else holds is looked at another time. Locked and
# counted in one statement, a row could be newer than the parents that are counted for it, and a true count be "mended".
_LOCK_SLICE = "SELECT id FROM node_roles WHERE id > :after ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED"

_RECOUNT = """
SELECT nr.id, nr.unmet, count(p.id) FILTER (WHERE p.state <> :active) AS counted
FROM node_roles nr LEFT JOIN node_role_edges e ON e.child_id = nr.id LEFT JOIN node_roles p ON p.id = e.parent_id
WHERE nr.id = ANY (:ids) GROUP BY nr.id, nr.unmet ORDER BY nr.id
"""
