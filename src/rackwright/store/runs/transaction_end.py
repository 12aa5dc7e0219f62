"""The last steps of a transaction: hooks are queued for the states it moved noderoles to, and slots are refreshed."""

from rackwright.store.db.session import Session
from rackwright.store.hooks.hook_calls import queue_state_hooks
from rackwright.store.runs.slots import WORK_CHANNEL, refresh_slots


async def refresh_touched_slots(session: Session) -> None:
    """Compute again what runs next on the touched nodes, and wake annealers if something can start."""
    await queue_hooks_of_moves(session)
    if session.touched and await refresh_slots(session, session.touched):
        await session.run(f"NOTIFY {WORK_CHANNEL}")
    session.touched.clear()


async def queue_hooks_of_moves(session: Session) -> None:
    """Queue hooks for the moves so far. This comes before slots, since a hook that is due keeps work from starting."""
    moved, session.state_changes = session.state_changes, []
    await queue_state_hooks(session, moved)
