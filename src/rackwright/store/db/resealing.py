"""Rotate the vault's key: seal every stored secret again under a new one."""

from pathlib import Path

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json
from rackwright.domain.sealed import SEAL, is_sealed
from rackwright.store.db.session import Session
from rackwright.store.db.vault import Vault, save_vault
from rackwright.store.db.vault_check import remember_vault
from rackwright.store.store import Store

SEALED_COLUMNS = (
    ("node_roles", ("user_data", "wall", "sysdata")),
    ("deployment_roles", ("data", "wall")),
    ("snapshot_roles", ("data",)),
    ("snapshot_bindings", ("data",)),
    ("nodes", ("hint",)),
    ("runs", ("staged",)),
    ("webhooks", ("secret",)),
    ("hook_calls", ("view",)),
    ("hook_views", ("view",)),
)


async def rotate_key(store: Store, home: Path) -> int:
    """Seal every secret under a new key, drop the older keys, and return how many values that changed.

    The key file has the old keys and the new one until everything is sealed anew, so if this ends in the middle nothing
    is lost, and to do it again completes it.
    """
    vault = store.vault.with_new_key()
    save_vault(vault, home)
    store.vault = vault

    async def work(session: Session) -> int:
        changed = await reseal(session, vault)
        await remember_vault(session, vault)
        return changed

    changed = await store.change(work, actor="key rotation")
    store.vault = vault.with_newest_key_only()
    save_vault(store.vault, home)
    return changed


async def reseal(session: Session, vault: Vault) -> int:
    """Seal every stored secret under the newest key, and return how many rows that changed."""
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
