"""Bringing every stored secret under the vault's newest key."""

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json
from rackwright.domain.sealed import SEAL, is_sealed
from rackwright.store.session import Session
from rackwright.store.vault import Vault

SEALED_COLUMNS = (
    ("node_roles", ("user_data", "wall", "sysdata")),
    ("deployment_roles", ("data", "wall")),
    ("snapshot_roles", ("data",)),
    ("snapshot_bindings", ("data",)),
    ("nodes", ("hint", "discovery")),
)


async def reseal(session: Session, vault: Vault) -> int:
    """Bring every stored secret under the newest key, and say how many rows that changed."""
    changed = 0
    for table, columns in SEALED_COLUMNS:
        for column in columns:
            rows = await session.rows(
                f"SELECT ctid::text AS ctid, {column} AS value FROM {table} WHERE {column}::text LIKE :mark FOR UPDATE",
                mark=f'%"{SEAL}"%',
            )
            for row in rows:
                await session.run(
                    f"UPDATE {table} SET {column} = :value WHERE ctid = CAST(:ctid AS tid)",
                    value=Jsonb(_resealed(vault, row.value)),
                    ctid=row.ctid,
                )
            changed += len(rows)
    return changed


def _resealed(vault: Vault, value: Json) -> Json:
    if isinstance(value, dict):
        if is_sealed(value):
            return vault.seal(vault.open(value))
        return {key: _resealed(vault, inner) for key, inner in value.items()}
    return [_resealed(vault, inner) for inner in value] if isinstance(value, list) else value
