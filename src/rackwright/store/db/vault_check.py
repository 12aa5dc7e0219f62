"""Check that a server's key file belongs to the database it is started on.

A database stores which vault sealed its secrets, as a mark that tells nothing about the keys. A server with another key
file could open none of those secrets, and no other server could open what it sealed itself; so it does not start.
"""

import hashlib
import hmac
from pathlib import Path

from psycopg.types.json import Jsonb

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import RackwrightError
from rackwright.domain.sealed import SEAL, is_sealed
from rackwright.store.db.session import Session
from rackwright.store.db.vault import KEY_FILE, Vault, VaultLocked, load_vault
from rackwright.store.store import Store

VAULT_SETTING = "vault"
SERVER_SEALED_COLUMNS = (
    ("node_roles", "user_data"),
    ("deployment_roles", "data"),
    ("snapshot_roles", "data"),
    ("snapshot_bindings", "data"),
    ("nodes", "hint"),
    ("webhooks", "secret"),
)
"""Columns with secrets that the server sealed itself. Reports of machines and scripts may hold a made-up seal."""


class VaultKeyMissing(RackwrightError):
    """The key that sealed this database's secrets is not in the key file."""

    status = 503
    type = "vault-key-missing"


async def open_vault(store: Store, home: Path) -> Vault:
    """Load the vault of a server on this database; make a new one only for a database that has no secrets yet."""
    path = home / KEY_FILE
    if not path.exists():
        async with store.read() as session:
            if await _read_mark(session) is not None or await _sealed_values(session):
                raise VaultKeyMissing(_explanation(path, "has none"))
    vault = load_vault(home)
    await store.change(lambda session: _check(session, vault, path), actor="first start")
    return vault


async def _check(session: Session, vault: Vault, path: Path) -> None:
    await session.run("SELECT pg_advisory_xact_lock(hashtext('rackwright vault'))")
    stored_mark = await _read_mark(session)
    if stored_mark is None:
        values = await _sealed_values(session)
        if values and not any(_can_open(vault, value) for value in values):
            raise VaultKeyMissing(_explanation(path, "has others"))
    elif not isinstance(stored_mark, dict) or stored_mark.get("vault") != _compute_mark(vault):
        raise VaultKeyMissing(_explanation(path, "has others"))
    elif int(str(stored_mark.get("newest", 0))) > vault.newest:
        raise VaultKeyMissing(_explanation(path, "has only older ones"))
    await remember_vault(session, vault)


async def remember_vault(session: Session, vault: Vault) -> None:
    """Store which keys a server needs for this database from now on."""
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE"
        " SET value = excluded.value WHERE settings.value <> excluded.value",
        name=VAULT_SETTING,
        value=Jsonb({"vault": _compute_mark(vault), "newest": vault.newest}),
    )


async def _read_mark(session: Session) -> Json:
    mark: Json = await session.value("SELECT value FROM settings WHERE name = :name", name=VAULT_SETTING)
    return mark


def _compute_mark(vault: Vault) -> str:
    return hmac.new(vault.fingerprint_key, b"rackwright vault", hashlib.sha256).hexdigest()


async def _sealed_values(session: Session) -> list[Json]:
    """Return some of the sealed values that are stored."""
    values: list[Json] = []
    for table, column in SERVER_SEALED_COLUMNS:
        rows = await session.rows(
            f"SELECT {column} AS value FROM {table} WHERE {column}::text LIKE :mark LIMIT 10",
            mark=f'%"{SEAL}"%',
        )
        values += [value for row in rows for value in _seals_in(row.value)]
    return values


def _seals_in(value: Json) -> list[Json]:
    if is_sealed(value):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [seal for each in inner for seal in _seals_in(each)]


def _can_open(vault: Vault, value: Json) -> bool:
    try:
        vault.open(value)
    except VaultLocked:
        return False
    return True


def _explanation(path: Path, state: str) -> str:
    return (
        f"This database's secrets are sealed with keys that are not in {path}: this server {state}. Copy {path.name} "
        f"from the home of the server that used this database first to {path}, readable by its owner alone, and start "
        "again. Without that file the secrets are lost."
    )
