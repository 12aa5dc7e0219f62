"""Nodes that sleep while nothing is left to do on them, and wake when something is.

Decisions depend on the present state, not on events.
"""

from dataclasses import dataclass

from rackwright.domain.machines.power import Sleep
from rackwright.domain.states import ACTIVE, BLOCKED, PROPOSED, TODO, TRANSITION
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.machines.nodes import update_node

SHUTDOWN_SECONDS = 120.0
"""Seconds that a system has to shut down by itself before its power is cut."""
RECHECK_SECONDS = 5.0
"""Seconds after which it is checked whether a system has shut down."""

_BUSY = ", ".join(str(int(state)) for state in (TODO, BLOCKED, TRANSITION))

# Work that waits for the node itself: a noderole that is BLOCKED, or held, waits for something else.
_HAS_WORK = f"""
    (n.stay_on OR EXISTS (SELECT FROM runs WHERE runs.node_id = n.id AND runs.state = 'queued')
     OR EXISTS (SELECT FROM node_roles nr JOIN deployments d ON d.id = nr.deployment_id AND NOT d.held
                WHERE nr.node_id = n.id AND nr.state = {int(TODO)} AND NOT nr.doomed))
"""

_MAY_SLEEP = f"""
SELECT n.id FROM nodes n
WHERE n.alive AND n.available AND NOT n.system AND NOT n.admin AND NOT n.stay_on AND n.sleep IS NULL
  AND EXISTS (SELECT FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND 'powersave' = ANY (r.flags)
              WHERE nr.node_id = n.id AND nr.state = {int(ACTIVE)} AND NOT EXISTS (
                  SELECT FROM node_role_edges e JOIN node_roles child ON child.id = e.child_id
                  WHERE e.parent_id = nr.id AND child.state <> {int(PROPOSED)}))
  AND NOT EXISTS (SELECT FROM node_roles nr WHERE nr.node_id = n.id AND nr.state IN ({_BUSY}))
  AND NOT EXISTS (SELECT FROM runs WHERE runs.node_id = n.id AND runs.state IN ('queued', 'running', 'accepted'))
  AND NOT EXISTS (SELECT FROM hook_calls h WHERE h.blocks AND h.node_id = n.id)
ORDER BY n.id FOR UPDATE SKIP LOCKED
"""

_MUST_WAKE = f"""
UPDATE nodes n SET sleep = '{Sleep.WAKING}', power_until = NULL
WHERE n.sleep IN ('{Sleep.FALLING}', '{Sleep.ASLEEP}') AND {_HAS_WORK} RETURNING n.id
"""


async def update_sleep_states(session: Session) -> None:
    """Send nodes that have nothing left to do to sleep, and wake those that sleep and have work."""
    for row in await session.rows(_MAY_SLEEP):
        await session.run("UPDATE nodes SET sleep = :sleep WHERE id = :id", sleep=Sleep.FALLING.value, id=row.id)
        # It is not alive from this moment on: nothing can start on it between this decision and the loss of its power.
        await update_node(session, row.id, {"alive": False})
        await emit(session, "node.falling_asleep", row.id, node_id=row.id)
    for row in await session.rows(_MUST_WAKE):
        await emit(session, "node.waking", row.id, node_id=row.id)


@dataclass(frozen=True)
class PowerAction:
    """A node whose power is to be switched, by one server at a time."""

    node_id: int
    sleep: Sleep


async def select_due_power_actions(session: Session, lease: float = 30.0) -> list[PowerAction]:
    """Return the nodes whose power is to be switched now; one not seen to be done in time is due again."""
    rows = await session.rows(
        """
        UPDATE nodes SET power_until = now() + :lease * interval '1 second'
        WHERE id IN (SELECT id FROM nodes WHERE sleep IN ('falling', 'waking') AND coalesce(power_until < now(), true)
                     ORDER BY id FOR UPDATE SKIP LOCKED)
        RETURNING id, sleep
        """,
        lease=lease,
    )
    return [PowerAction(row.id, Sleep(row.sleep)) for row in rows]


async def is_still_due(session: Session, action: PowerAction) -> bool:
    """Return whether the decision still holds, nothing runs on the node, and the time to act is not over."""
    return bool(
        await session.value(
            "SELECT 1 FROM nodes n WHERE id = :id AND sleep = :sleep AND power_until > now() AND NOT EXISTS ("
            " SELECT FROM runs WHERE runs.slot = n.id AND runs.state IN ('accepted', 'running'))",
            id=action.node_id,
            sleep=action.sleep.value,
        )
    )


async def read_shutdown_seconds(session: Session, node_id: int) -> float | None:
    """Return the seconds since the node's system was asked to shut down; None: it was not asked."""
    seconds: float | None = await session.value(
        "SELECT CAST(extract(epoch FROM now() - shutdown_at) AS float) FROM nodes WHERE id = :id", id=node_id
    )
    return seconds


async def record_shutdown_request(session: Session, node_id: int) -> None:
    """Record that the node's system was asked to shut down; soon it is checked whether it did."""
    await session.run(
        "UPDATE nodes SET shutdown_at = now(), power_until = now() + :soon * interval '1 second'"
        " WHERE id = :id AND sleep = 'falling'",
        id=node_id,
        soon=RECHECK_SECONDS,
    )
    await emit(session, "node.shutdown_asked", node_id, node_id=node_id)


async def record_power_cut(session: Session, node_id: int, waited: int | None) -> None:
    """Record that power was switched off without the system: nobody could ask it to shut down, or it took too long."""
    await emit(session, "node.power_cut", node_id, node_id=node_id, data={"waited_seconds": waited})


async def record_asleep(session: Session, node_id: int) -> None:
    """Record that the node's power is seen to be off."""
    changed = await session.run(
        "UPDATE nodes SET sleep = 'asleep', power_until = NULL, shutdown_at = NULL"
        " WHERE id = :id AND sleep = 'falling'",
        id=node_id,
    )
    if changed:
        await emit(session, "node.asleep", node_id, node_id=node_id)


async def record_awake(session: Session, node_id: int) -> None:
    """Record that the node reports a new boot: whatever was decided before, it is up."""
    await session.run(
        "UPDATE nodes SET sleep = NULL, power_until = NULL, shutdown_at = NULL WHERE id = :id AND sleep IS NOT NULL",
        id=node_id,
    )


async def cancel_waking(session: Session, node_id: int) -> None:
    """Record that a node that is to be woken is still up: work came before its power was cut, so it need not boot.

    A node whose system was asked to shut down is about to go, and is not up because one more message of it came.
    """
    await session.run(
        "UPDATE nodes SET sleep = NULL, power_until = NULL, shutdown_at = NULL WHERE id = :id AND sleep = 'waking'"
        " AND coalesce(shutdown_at < now() - :grace * interval '1 second', true)",
        id=node_id,
        grace=SHUTDOWN_SECONDS,
    )
