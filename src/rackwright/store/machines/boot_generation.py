"""The generation of what boot providers serve: one number, counted up in the transaction of whatever changes it."""

from rackwright.store.db.session import Session


async def next_generation(session: Session) -> int:
    """Something that boot providers serve changes with this transaction."""
    generation: int = await session.value(
        "INSERT INTO boot_state (generation) VALUES (1)"
        " ON CONFLICT (single) DO UPDATE SET generation = boot_state.generation + 1 RETURNING generation"
    )
    return generation
