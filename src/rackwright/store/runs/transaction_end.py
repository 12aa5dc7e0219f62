"""What a transaction does last: roles are told of its moves, and slots are worked out again."""

from rackwright.store.db.session import Session
from rackwright.store.hooks.hook_calls import queue_state_hooks
from rackwright.store.runs.slots import WORK_CHANNEL, refresh_slots


async def settle_slots(session: Session) -> None:
    """Work out anew what runs next on the touched nodes, and wake annealers if something can."""
    await queue_hooks(session)
    if session.touched and await refresh_slots(session, session.touched):
        await session.run(f"NOTIFY {WORK_CHANNEL}")
    session.touched.clear()


async def queue_hooks(session: Session) -> None:
    """Tell roles of the moves so far; it comes before slots, since a call to make keeps work from starting."""
    moved, session.moved = session.moved, []
    await queue_state_hooks(session, moved)
