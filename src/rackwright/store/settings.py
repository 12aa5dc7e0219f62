"""Read and write settings that change at run time. They are in the database, so that all servers agree."""

from typing import TypeVar

from psycopg.types.json import Jsonb

from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit

T = TypeVar("T")


async def read_setting(session: Session, name: str, default: T) -> T:
    row = await session.row("SELECT value FROM settings WHERE name = :name", name=name)
    return default if row is None else row.value


async def write_setting(session: Session, name: str, value: int | str | float | bool) -> None:
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name=name,
        value=Jsonb(value),
    )
    await emit(session, "setting.changed", data={"name": name, "value": value})
