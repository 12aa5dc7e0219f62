"""What can start now: the candidates of free slots, first come first, locked and then looked at."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.runs import HOLDS_SLOT
from rackwright.domain.states import Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.pipeline import Rows, Statement, array
from rackwright.store.graph.run_attribs import GLANCE, SHAPED, Glance
from rackwright.store.graph.transition_sql import sources_sql

_HOLDS = ", ".join(f"'{state}'" for state in sorted(HOLDS_SLOT))

_PICKED = """
picked AS (
    SELECT s.candidate_id FROM slots s JOIN nodes n ON n.id = s.node_id
    WHERE s.candidate_id IS NOT NULL AND (NOT n.admin OR n.id = :here OR CAST(:here AS bigint) IS NULL)
      AND (CAST(:only AS bigint) IS NULL OR s.candidate_id = :only)
    ORDER BY s.cohort, s.candidate_id LIMIT :limit
)"""

# Locked before they are staged: an input that changes from here on finds the run's revision too low. One that somebody
# else holds is left for the next pass; waiting for it here, with slots held, could deadlock.
_LOCK = f"""
WITH {_PICKED}
SELECT id FROM node_roles WHERE id = ANY (ARRAY(SELECT candidate_id FROM picked))
  AND {sources_sql(Trigger.CLAIM, state="state")}
ORDER BY cohort, id FOR UPDATE SKIP LOCKED
"""

_GLANCE = f"""
WITH {_PICKED}, {SHAPED}
SELECT {GLANCE} FROM node_roles nr JOIN nodes n ON n.id = nr.node_id CROSS JOIN shaped
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

    def statements(self, stored: StoredCatalogue) -> tuple[Statement, Statement]:
        """What to ask, in this order. Slots are up to date."""
        where = {"here": self.here, "limit": self.limit, "only": self.only}
        return (_LOCK, where), (_GLANCE, {**where, "templated": array(stored.templated_role_ids)})


def picked(locked: Rows, seen: Rows) -> list[Glance]:
    """What they found. Each looked at its own moment, and between the two a slot may have got another candidate."""
    ours = {id for (id,) in locked}
    return [Glance._make(row) for row in seen if row[0] in ours]


# --- whole lines of work

LOCKED = "rackwright.locked"
"""A setting of the transaction: the noderoles that its last statement locked, for the statement after it."""

_FOLLOWS = (Trigger.PARENTS_MET, Trigger.CLAIM)
"""What has to happen to those of a line before they run: to all of them the second, to some the first before it."""

# What could follow on the same node is taken along. On a phantom node each noderole is a place of its own. A slot that
# is not free after all is left alone: nobody else starts a run while we hold the cap lock.
_LOCK_LINES = f"""
WITH picked AS (
    SELECT s.node_id, s.node_role_id, s.cohort, s.candidate_id FROM slots s JOIN nodes n ON n.id = s.node_id
    WHERE s.candidate_id IS NOT NULL AND (NOT n.admin OR n.id = :here OR CAST(:here AS bigint) IS NULL)
      AND abs(s.slot) % :lanes = :lane
      AND NOT EXISTS (SELECT FROM runs WHERE runs.slot = s.slot AND runs.state IN ({_HOLDS}))
    ORDER BY s.cohort, s.candidate_id LIMIT :limit
), locked AS (
    SELECT id FROM node_roles WHERE id = ANY (ARRAY(
        SELECT line.id FROM picked CROSS JOIN LATERAL (
            SELECT nr.id FROM node_roles nr
            WHERE nr.node_id = picked.node_id AND (nr.cohort, nr.id) >= (picked.cohort, picked.candidate_id)
              AND (picked.node_role_id IS NULL OR nr.id = picked.node_role_id)
              AND {sources_sql(*_FOLLOWS)} AND NOT nr.doomed
            ORDER BY nr.cohort, nr.id LIMIT :length) line
    )) AND {sources_sql(*_FOLLOWS, state="state")}
    ORDER BY id FOR UPDATE SKIP LOCKED
)
SELECT set_config('{LOCKED}', CAST(ARRAY(SELECT id FROM locked) AS text), true)
"""

# In a statement of its own, so that it sees every edge to what is locked. A run that is made at once has its id before
# it is written.
_GLANCE_LINES = f"""
WITH {SHAPED}
SELECT {GLANCE}, nr.state, nr.unmet,
       CASE WHEN nr.unmet > 0 THEN ARRAY(SELECT e.parent_id FROM node_role_edges e WHERE e.child_id = nr.id) END,
       CASE WHEN r.jig = ANY (CAST(:instant AS text[])) THEN nextval('runs_id_seq') END
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
JOIN jigs j ON j.name = r.jig AND j.active JOIN deployments d ON d.id = nr.deployment_id AND NOT d.held
CROSS JOIN shaped
WHERE nr.id = ANY ((SELECT CAST(current_setting('{LOCKED}') AS bigint[]))::bigint[])
ORDER BY nr.cohort, nr.id
"""


@dataclass(frozen=True)
class Lines:
    """Candidates, each with what could follow it on its node: so many of them, each so long."""

    here: int | None
    limit: int
    length: int
    instant: Sequence[str]
    """The jigs whose runs are made at once."""
    lane: int = 0
    lanes: int = 1
    """Slots are dealt out to so many lanes, and this picks from one of them."""

    def statements(self, stored: StoredCatalogue) -> tuple[Statement, Statement]:
        """What to ask, in this order. Slots are up to date."""
        return (
            _LOCK_LINES,
            {
                "here": self.here,
                "limit": self.limit,
                "length": self.length,
                "lane": self.lane,
                "lanes": self.lanes,
            },
        ), (_GLANCE_LINES, {"templated": array(stored.templated_role_ids), "instant": list(self.instant)})


@dataclass(frozen=True, slots=True)
class Waiting:
    """A noderole of a line: its turn has come, or comes once those above it are over."""

    glance: Glance
    state: int
    unmet: int
    parents: Sequence[int]
    """All that it stands on; none where `unmet` is 0."""
    run_id: int | None
    """The id of its run, if that is made at once."""


def in_lines(seen: Rows) -> list[Waiting]:
    """What the second statement found, parents before their children."""
    width = len(Glance._fields)
    return [
        Waiting(Glance._make(row[:width]), state, unmet, parents or (), run_id)
        for row in seen
        for state, unmet, parents, run_id in (row[width:],)
    ]
