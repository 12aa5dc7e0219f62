"""How many noderoles, runs, nodes, hook calls and webhooks are in each state: for metrics."""

from dataclasses import dataclass

from rackwright.domain.states import NodeRoleState
from rackwright.store.db.session import Session


@dataclass(frozen=True)
class SystemCounts:
    noderoles: dict[str, int]
    runs: dict[str, int]
    nodes: dict[str, int]
    hook_calls: dict[str, int]
    webhooks: dict[str, int]


async def read_system_counts(session: Session) -> SystemCounts:
    async def count_by(query: str) -> dict[str, int]:
        return {str(row.word): int(row.number) for row in await session.rows(query)}

    states = await count_by("SELECT state AS word, count(*) AS number FROM node_roles GROUP BY state")
    return SystemCounts(
        {NodeRoleState(int(state)).label: count for state, count in states.items()},
        await count_by(
            "SELECT state AS word, count(*) AS number FROM runs"
            " WHERE state IN ('queued', 'running', 'accepted') GROUP BY state"
        ),
        await count_by(
            "SELECT CASE WHEN alive THEN 'yes' ELSE 'no' END AS word, count(*) AS number FROM nodes"
            " WHERE NOT system GROUP BY 1"
        ),
        await count_by("SELECT state AS word, count(*) AS number FROM hook_calls GROUP BY state"),
        await count_by("SELECT state AS word, count(*) AS number FROM webhooks GROUP BY state"),
    )
