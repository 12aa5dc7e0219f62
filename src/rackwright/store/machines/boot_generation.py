"""The generation of what boot providers serve: a number that every transaction which changes that raises."""

from rackwright.store.db.session import Session


async def raise_boot_generation(session: Session) -> int:
    """Raise the generation, because this transaction changes what boot providers serve, and return it."""
    generation: int = await session.value(
        "INSERT INTO boot_state (generation) VALUES (1)"
        " ON CONFLICT (single) DO UPDATE SET generation = boot_state.generation + 1 RETURNING generation"
    )
    return generation
