"""What every tick does: takeovers, deadlines, retries; and a rolling look at whether counters and slots are true.

Counters of unmet parents and candidates of slots are kept by every change. Re-deriving them here costs little and
means that a mistake stops nothing for long; each repair is counted, and is a defect to be found.
"""

from dataclasses import dataclass

from rackwright.domain.states import ACTIVE
from rackwright.store.db.session import Session
from rackwright.store.graph.transitions import step_children
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.slots import check_slots
from rackwright.store.runs.transaction_end import settle_slots

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
        taken_over = await run_lifecycle.take_over(session)
        overdue = await run_lifecycle.end_overdue(session)
        retried = await run_lifecycle.retry_due(session)
        await run_lifecycle.drop_moot_refreshes(session)
        await settle_slots(session)
        repaired = await self._repair_slots(session) + await self._repair_counters(session)
        return Done(len(taken_over), len(overdue), retried, repaired)

    async def _repair_slots(self, session: Session) -> int:
        after, wrong = await check_slots(session, self._slot, SLOTS)
        self._slot = -(1 << 62) if after is None else after
        session.touch(wrong)
        return len(wrong)

    async def _repair_counters(self, session: Session) -> int:
        slice = await session.rows(_RECOUNT_SLICE, after=self._node_role, limit=SLICE, active=int(ACTIVE))
        self._node_role = slice[-1].id if len(slice) == SLICE else 0
        doubtful = [row.id for row in slice if row.counted != row.unmet]
        if not doubtful:
            return 0
        locked = await session.rows(_LOCK, ids=doubtful)
        rows = await session.rows(_RECOUNT, ids=[row.id for row in locked], active=int(ACTIVE))
        wrong = [(row.id, row.counted - row.unmet) for row in rows if row.counted != row.unmet]
        await step_children(session, wrong)
        return len(wrong)


# A change of a parent and of its children's counts is one transaction, so every moment is true in itself: to look needs
# no lock, and keeps nobody waiting. To repair does, and a second look at what is locked; what somebody else holds is
# looked at another time. Locked and counted in one statement, a row could be newer than the parents that are counted
# for it, and a true count be "mended".
_LOCK = "SELECT id FROM node_roles WHERE id = ANY (:ids) ORDER BY id FOR UPDATE SKIP LOCKED"

_COUNTED = """
SELECT nr.id, nr.unmet, (
    SELECT count(*) FROM node_role_edges e JOIN node_roles p ON p.id = e.parent_id
    WHERE e.child_id = nr.id AND p.state <> :active) AS counted
FROM node_roles nr
"""

_RECOUNT_SLICE = f"{_COUNTED} WHERE nr.id > :after ORDER BY nr.id LIMIT :limit"
_RECOUNT = f"{_COUNTED} WHERE nr.id = ANY (:ids) ORDER BY nr.id"
