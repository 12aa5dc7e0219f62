"""Orders for machines' controllers that the server which was asked could not reach: another server may carry them out.

An order is a row for as long as somebody waits for it. Each server that takes one either carries it out or writes down
why it cannot reach the controller either; an order that nobody waits for any more is not begun.
"""

from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.power import PowerOrder
from rackwright.store.db.session import Session

CHANNEL = "rackwright_power"
TAKEN_SECONDS = 120.0
"""How long a server may take over one order. One that is killed meanwhile leaves it undone."""


@dataclass(frozen=True)
class TakenOrder:
    id: int
    node_id: int
    order: PowerOrder


@dataclass(frozen=True)
class OrderProgress:
    """What became of an order so far."""

    power: str | None = None
    """Set when it is carried out."""
    error: str | None = None
    """Set when the controller refused it, or broke."""
    is_taken: bool = False
    quiet: float = 0.0
    """Seconds since a server last did something about it."""
    tried: JsonObject = field(default_factory=dict)
    """Why servers could not reach the controller, by server."""


async def place_order(session: Session, node_id: int, order: PowerOrder, server: str, reason: str) -> int:
    """Ask the other servers to carry out an order, since this one cannot reach the controller."""
    id: int = await session.value(
        "INSERT INTO power_orders (node_id, action, tried) VALUES (:node, :action, :tried) RETURNING id",
        node=node_id,
        action=order.value,
        tried=Jsonb({server: reason}),
    )
    await session.run(f"NOTIFY {CHANNEL}")
    return id


async def take_orders(session: Session, server: str, patience: float) -> list[TakenOrder]:
    """Take the orders that nobody works on and that this server has not tried yet.

    `patience`: seconds after which nobody waits for an order any more.
    """
    await session.run(
        "DELETE FROM power_orders WHERE acted_at < now() - :seconds * interval '1 second'", seconds=2 * TAKEN_SECONDS
    )
    rows = await session.rows(
        """
        UPDATE power_orders SET taken_by = :server, acted_at = now() WHERE id IN (
            SELECT id FROM power_orders WHERE taken_by IS NULL AND power IS NULL AND error IS NULL
              AND NOT jsonb_exists(tried, :server) AND acted_at > now() - :patience * interval '1 second'
            FOR UPDATE SKIP LOCKED)
        RETURNING id, node_id, action
        """,
        server=server,
        patience=patience,
    )
    return [TakenOrder(row.id, row.node_id, PowerOrder(row.action)) for row in rows]


async def record_power(session: Session, id: int, power: str) -> None:
    await session.run("UPDATE power_orders SET power = :power, acted_at = now() WHERE id = :id", power=power, id=id)


async def record_failure(session: Session, id: int, error: str) -> None:
    await session.run("UPDATE power_orders SET error = :error, acted_at = now() WHERE id = :id", error=error, id=id)


async def record_out_of_reach(session: Session, id: int, server: str, reason: str) -> None:
    """Record that a server cannot reach the controller, so that the others try."""
    await session.run(
        "UPDATE power_orders SET tried = tried || :tried, taken_by = NULL, acted_at = now() WHERE id = :id",
        tried=Jsonb({server: reason}),
        id=id,
    )
    await session.run(f"NOTIFY {CHANNEL}")


async def read_progress(session: Session, id: int) -> OrderProgress:
    row = await session.row(
        "SELECT power, error, taken_by IS NOT NULL AS is_taken, tried,"
        " extract(epoch FROM now() - acted_at)::float AS quiet FROM power_orders WHERE id = :id",
        id=id,
    )
    if row is None:  # its node was deleted
        return OrderProgress(error="the node is gone")
    return OrderProgress(row.power, row.error, row.is_taken, row.quiet, row.tried)


async def withdraw_order(session: Session, id: int) -> None:
    """Remove an order for which nobody waits any more."""
    await session.run("DELETE FROM power_orders WHERE id = :id", id=id)
