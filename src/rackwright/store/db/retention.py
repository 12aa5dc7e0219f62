"""Delete old rows of every table that grows with time. Each statement deletes a bounded number of rows.

Runs are looked through in the order of their ids, which is that of time, so that the annealer need not keep up an index
for it as it writes. What a person still needs stays however old it is: the last run of a noderole, the last install of
a node.
"""

from collections.abc import Mapping

from rackwright.store.db.session import Session

BATCH = 5000

FORGET_SQL = {
    "install_attempts": """
        DELETE FROM install_attempts WHERE id IN (
            SELECT id FROM install_attempts a WHERE a.ended_at < now() - :keep * interval '1 second'
                AND EXISTS (SELECT FROM install_attempts later WHERE later.node_id = a.node_id AND later.id > a.id)
            ORDER BY id LIMIT :batch)""",
    "hook_calls": """
        DELETE FROM hook_calls WHERE id IN (
            SELECT id FROM hook_calls WHERE state = 'failed' AND queued_at < now() - :keep * interval '1 second'
            ORDER BY id LIMIT :batch)""",
    "tokens": """
        DELETE FROM tokens WHERE id IN (
            SELECT id FROM tokens WHERE expires_at < now() - :keep * interval '1 second' ORDER BY id LIMIT :batch)""",
    "sessions": """
        DELETE FROM sessions WHERE id IN (
            SELECT id FROM sessions WHERE expires_at < now() - :keep * interval '1 second' ORDER BY id LIMIT :batch)""",
    "contents": """
        DELETE FROM contents WHERE digest IN (
            SELECT digest FROM contents c WHERE c.used_at < now() - :keep * interval '1 second'
                AND NOT EXISTS (SELECT FROM barclamps b WHERE b.digest = c.digest)
                AND NOT EXISTS (SELECT FROM runs r WHERE r.content = c.digest
                    AND r.state IN ('accepted', 'running'))
            ORDER BY digest LIMIT :batch)""",
    "kept_answers": """
        DELETE FROM kept_answers WHERE (owner, key) IN (
            SELECT owner, key FROM kept_answers WHERE at < now() - :keep * interval '1 second'
            ORDER BY at LIMIT :batch FOR UPDATE SKIP LOCKED)""",
}
"""For each table the SQL that deletes rows which ended longer than `keep` seconds ago, `batch` rows at a time."""

FORGOTTEN_ELSEWHERE = {
    "events": "by the setting event_retention, in their own order: readers are told what is gone",
    "runs": "by `forget_runs`",
    "run_logs": "with their runs",
    "hook_views": "with the last call that shows one",
    "spent_challenges": "two minutes later, by the registrations that follow",
    "power_orders": "as soon as they are answered, or nobody can wait for them any more",
    "webhook_deliveries": "each webhook keeps its last ones only",
}

BOUNDED_TABLES = frozenset(
    {
        *("barclamps", "jigs", "hammers", "roles", "attribs", "nodes", "node_macs", "groups", "node_groups"),
        *("deployments", "deployment_roles", "node_roles", "node_role_edges", "node_role_links", "graph", "slots"),
        *("boot_state", "boot_providers", "settings", "networks", "ranges", "range_gaps", "routers", "allocations"),
        *("users", "grants", "webhooks", "domains", "confirmed_wipes"),
        # The history of what people committed is theirs to keep; it grows by what they do, not by what runs.
        *("snapshots", "snapshot_roles", "snapshot_bindings"),
    }
)
"""Tables that do not grow with time, but only with the number of people, machines and roles."""

_OLD_RUNS = """
SELECT id, coalesce(ended_at < now() - :keep * interval '1 second', false) AS old,
       EXISTS (SELECT FROM runs later WHERE later.node_role_id = r.node_role_id AND later.id > r.id)
           OR NOT EXISTS (SELECT FROM node_roles nr WHERE nr.id = r.node_role_id) AS replaced
FROM runs r WHERE id > :after ORDER BY id LIMIT :batch
"""


async def forget(session: Session, table: str, keep: float, batch: int = BATCH) -> int:
    """Delete some rows of a table that ended longer than `keep` seconds ago, and return how many."""
    return await session.run(FORGET_SQL[table], keep=keep, batch=batch)


async def forget_runs(session: Session, keep: float, after: int, batch: int = BATCH) -> tuple[int, int | None]:
    """Delete old runs and their logs among the next runs after a run. Return how many, and the run to go on after.

    None: all runs that follow are too young. The last run of a noderole stays, with its log, as long as the noderole.
    """
    rows = await session.rows(_OLD_RUNS, keep=keep, after=after, batch=batch)
    old_ids = [row.id for row in rows if row.old and row.replaced]
    if old_ids:
        await session.run("DELETE FROM runs WHERE id = ANY (:ids)", ids=old_ids)
    more = len(rows) == batch and any(row.old for row in rows)
    return len(old_ids), rows[-1].id if more else None


def tables_without_retention(tables: Mapping[str, object]) -> set[str]:
    """Return the tables for which nothing above says why they do not grow for ever."""
    return set(tables) - set(FORGET_SQL) - set(FORGOTTEN_ELSEWHERE) - BOUNDED_TABLES
