"""Selects what can start now: the candidates of free slots, in order, each locked and then read."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.runs import HOLDS_SLOT
from rackwright.domain.states import Trigger
from rackwright.store.catalogue.stored_catalogue import StoredCatalogue
from rackwright.store.db.pipeline import Rows, Statement, array
from rackwright.store.graph.run_attribs import CANDIDATE_COLUMNS, ROLES_WITH_DATA, ClaimCandidate
from rackwright.store.graph.transition_sql import sources_sql

_SLOT_HOLDING_STATES = ", ".join(f"'{state}'" for state in sorted(HOLDS_SLOT))

_CHOSEN_CANDIDATES = """
chosen AS (
    SELECT s.candidate_id FROM slots s JOIN nodes n ON n.id = s.node_id
    WHERE s.candidate_id IS NOT NULL AND (NOT n.admin OR n.id = :here OR CAST(:here AS bigint) IS NULL)
      AND (CAST(:only AS bigint) IS NULL OR s.candidate_id = :only)
    ORDER BY s.cohort, s.candidate_id LIMIT :limit
)"""

# Candidates are locked before they are staged: an input that changes from here on finds the run's revision too low. A
# row that another transaction holds is left for the next pass; waiting for it here, with slots held, could deadlock.
_LOCK_CANDIDATES = f"""
WITH {_CHOSEN_CANDIDATES}
SELECT id FROM node_roles WHERE id = ANY (ARRAY(SELECT candidate_id FROM chosen))
  AND {sources_sql(Trigger.CLAIM, state="state")}
ORDER BY cohort, id FOR UPDATE SKIP LOCKED
"""

_READ_CANDIDATES = f"""
WITH {_CHOSEN_CANDIDATES}, {ROLES_WITH_DATA}
SELECT {CANDIDATE_COLUMNS} FROM node_roles nr JOIN nodes n ON n.id = nr.node_id CROSS JOIN shaped
WHERE nr.id = ANY (ARRAY(SELECT candidate_id FROM chosen))
ORDER BY nr.cohort, nr.id
"""


@dataclass(frozen=True)
class CandidateQuery:
    """Which candidates to claim."""

    here: int | None
    """The admin node whose work this server does; None: it does the work of every admin node."""
    limit: int
    only: int | None = None
    """The only noderole to claim; None: all may be claimed."""

    def statements(self, stored: StoredCatalogue) -> tuple[Statement, Statement]:
        """Return the statements to send, in this order, when slots are up to date: one locks, one reads."""
        values = {"here": self.here, "limit": self.limit, "only": self.only}
        return (_LOCK_CANDIDATES, values), (_READ_CANDIDATES, {**values, "templated": array(stored.templated_role_ids)})


def read_candidates(locked: Rows, rows: Rows) -> list[ClaimCandidate]:
    """Return the candidates that were both locked and read.

    Each of the two statements sees its own moment, and between the two a slot may have got another candidate.
    """
    locked_ids = {id for (id,) in locked}
    return [ClaimCandidate._make(row) for row in rows if row[0] in locked_ids]


# --- lines: a candidate and what could follow it on its node

LOCKED_SETTING = "rackwright.locked"
"""A setting of the transaction that hands the noderoles locked by one statement to the next statement."""

_LINE_TRIGGERS = (Trigger.PARENTS_MET, Trigger.CLAIM)
"""The triggers that move the noderoles of a line before they run: all get the second, some the first before it."""

# What could follow on the same node is locked too. On a phantom node each noderole has a slot of its own. A slot that
# is not free after all is left alone: no other server starts a run while this one holds the cap lock.
_LOCK_LINES = f"""
WITH chosen AS (
    SELECT s.node_id, s.node_role_id, s.cohort, s.candidate_id FROM slots s JOIN nodes n ON n.id = s.node_id
    WHERE s.candidate_id IS NOT NULL AND (NOT n.admin OR n.id = :here OR CAST(:here AS bigint) IS NULL)
      AND abs(s.slot) % :lanes = :lane
      AND NOT EXISTS (SELECT FROM runs WHERE runs.slot = s.slot AND runs.state IN ({_SLOT_HOLDING_STATES}))
    ORDER BY s.cohort, s.candidate_id LIMIT :limit
), locked AS (
    SELECT id FROM node_roles WHERE id = ANY (ARRAY(
        SELECT line.id FROM chosen CROSS JOIN LATERAL (
            SELECT nr.id FROM node_roles nr
            WHERE nr.node_id = chosen.node_id AND (nr.cohort, nr.id) >= (chosen.cohort, chosen.candidate_id)
              AND (chosen.node_role_id IS NULL OR nr.id = chosen.node_role_id)
              AND {sources_sql(*_LINE_TRIGGERS)} AND NOT nr.doomed
            ORDER BY nr.cohort, nr.id LIMIT :length) line
    )) AND {sources_sql(*_LINE_TRIGGERS, state="state")}
    ORDER BY id FOR UPDATE SKIP LOCKED
)
SELECT set_config('{LOCKED_SETTING}', CAST(ARRAY(SELECT id FROM locked) AS text), true)
"""

# It is a statement of its own, so that it sees every edge to what is locked. An instant run has its id before it is
# written.
_READ_LINES = f"""
WITH {ROLES_WITH_DATA}
SELECT {CANDIDATE_COLUMNS}, nr.state, nr.unmet,
       CASE WHEN nr.unmet > 0 THEN ARRAY(SELECT e.parent_id FROM node_role_edges e WHERE e.child_id = nr.id) END,
       CASE WHEN r.jig = ANY (CAST(:instant AS text[])) THEN nextval('runs_id_seq') END
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
JOIN jigs j ON j.name = r.jig AND j.active JOIN deployments d ON d.id = nr.deployment_id AND NOT d.held
CROSS JOIN shaped
WHERE nr.id = ANY ((SELECT CAST(current_setting('{LOCKED_SETTING}') AS bigint[]))::bigint[])
ORDER BY nr.cohort, nr.id
"""


@dataclass(frozen=True)
class LineQuery:
    """Which candidates to claim, at most `limit`, each with what could follow it on its node, in lines of `length`."""

    here: int | None
    limit: int
    length: int
    instant: Sequence[str]
    """The names of the jigs whose runs are instant."""
    lane: int = 0
    lanes: int = 1
    """Slots are divided among so many lanes, and the query takes those of one lane."""

    def statements(self, stored: StoredCatalogue) -> tuple[Statement, Statement]:
        """Return the statements to send, in this order, when slots are up to date: one locks, one reads."""
        return (
            _LOCK_LINES,
            {
                "here": self.here,
                "limit": self.limit,
                "length": self.length,
                "lane": self.lane,
                "lanes": self.lanes,
            },
        ), (_READ_LINES, {"templated": array(stored.templated_role_ids), "instant": list(self.instant)})


@dataclass(frozen=True, slots=True)
class LineMember:
    """A noderole of a line: it can start now, or once those above it are over."""

    candidate: ClaimCandidate
    state: int
    unmet: int
    parents: Sequence[int]
    """All of its parents; empty where `unmet` is 0."""
    run_id: int | None
    """The id of its run, if the run is instant."""


def read_line_members(rows: Rows) -> list[LineMember]:
    """Return the noderoles that the second statement read, parents before their children."""
    width = len(ClaimCandidate._fields)
    return [
        LineMember(ClaimCandidate._make(row[:width]), state, unmet, parents or (), run_id)
        for row in rows
        for state, unmet, parents, run_id in (row[width:],)
    ]
