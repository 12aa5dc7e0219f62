"""What can start now: the candidates of free slots, first come first, locked and then looked at."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.states import TODO
from rackwright.store.catalogue import StoredCatalogue
from rackwright.store.session import Asked, Rows, array
from rackwright.store.staging import GLANCE, SHAPED, Glance

_PICKED = """
picked AS (
    SELECT s.candidate_id FROM slots s JOIN nodes n ON n.id = s.node_id
    WHERE s.candidate_id IS NOT NULL AND (NOT n.admin OR n.id = :here OR CAST(:here AS bigint) IS NULL)
      AND (CAST(:only AS bigint) IS NULL OR s.candidate_id = :only) AND abs(s.slot) % :lanes = :lane
      AND (s.cohort, s.candidate_id) > (:cohort, :after)
    ORDER BY s.cohort, s.candidate_id LIMIT :limit
)"""

# Locked before they are staged: an input that changes from here on finds the run's revision too low. One that somebody
# else holds is left for the next pass; waiting for it here, with slots held, could deadlock.
_LOCK = f"""
WITH {_PICKED}
SELECT id FROM node_roles WHERE id = ANY (ARRAY(SELECT candidate_id FROM picked)) AND state = {int(TODO)}
ORDER BY cohort, id FOR UPDATE SKIP LOCKED
"""

# A run that is made at once has its id before it is written.
_GLANCE = f"""
WITH {_PICKED}, {SHAPED}
SELECT {GLANCE}, CASE WHEN r.jig = ANY (CAST(:instant AS text[])) THEN nextval('runs_id_seq') END
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id CROSS JOIN shaped
WHERE nr.id = ANY (ARRAY(SELECT candidate_id FROM picked))
ORDER BY nr.cohort, nr.id
"""


@dataclass(frozen=True)
class Picking:
    """Which to pick."""

    here: int | None
    """The admin node whose work is ours; None: that of every admin node is."""
    limit: int
    only: int | None = None
    lane: int = 0
    lanes: int = 1
    """Slots are dealt out to so many lanes, and this picks from one of them."""
    cohort: int = -(1 << 31)
    after: int = 0
    """Only what comes later than this noderole: to go on in a transaction without looking at what it took before."""
    instant: Sequence[str] = ()
    """The jigs whose runs are made at once."""

    def statements(self, stored: StoredCatalogue) -> tuple[Asked, Asked]:
        """What to ask, in this order. Slots are up to date."""
        where = {
            "here": self.here,
            "limit": self.limit,
            "only": self.only,
            "lane": self.lane,
            "lanes": self.lanes,
            "cohort": self.cohort,
            "after": self.after,
        }
        return (_LOCK, where), (_GLANCE, {**where, "templated": array(stored.templated), "instant": list(self.instant)})


def picked(locked: Rows, seen: Rows) -> list[Glance]:
    """What they found. Each looked at its own moment, and between the two a slot may have got another candidate."""
    ours = {id for (id,) in locked}
    return [Glance._make(row) for row in seen if row[0] in ours]
