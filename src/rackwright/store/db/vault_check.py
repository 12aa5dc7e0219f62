"""Whether a server's key file belongs to the database it is started on.

A database remembers which vault sealed its secrets, by a mark that tells nothing about the keys. A server with another
key file could open none of them, and what it sealed itself no other server could open; so it does not start.
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

SETTING = "vault"
WRITTEN_BY_PEOPLE = (
    ("node_roles", "user_data"),
    ("deployment_roles", "data"),
    ("snapshot_roles", "data"),
    ("snapshot_bindings", "data"),
    ("nodes", "hint"),
    ("webhooks", "secret"),
)
"""Where secrets lie that the server sealed itself. What machines and scripts report may have a made-up seal in it."""


class VaultKeyMissing(RackwrightError):
    """The key that sealed this database's secrets is not in the key file."""

    status = 503
    type = "vault-key-missing"


async def open_vault(store: Store, home: Path) -> Vault:
    """The vault of a server on this database; made anew only for a database that has no secrets yet."""
    path = home / KEY_FILE
    if not path.exists():
        async with store.read() as session:
            if await _mark(session) is not None or await _sealed_values(session):
                raise VaultKeyMissing(_explanation(path, "has none"))
    vault = load_vault(home)
    await store.change(lambda session: _check(session, vault, path), actor="first start")
    return vault


async def _check(session: Session, vault: Vault, path: Path) -> None:
    await session.run("SELECT pg_advisory_xact_lock(hashtext('rackwright vault'))")
    marked = await _mark(session)
    if marked is None:
        values = await _sealed_values(session)
        if values and not any(_opens(vault, value) for value in values):
            raise VaultKeyMissing(_explanation(path, "has others"))
    elif not isinstance(marked, dict) or marked.get("vault") != _mark_of(vault):
        raise VaultKeyMissing(_explanation(path, "has others"))
    elif int(str(marked.get("newest", 0))) > vault.newest:
        raise VaultKeyMissing(_explanation(path, "has only older ones"))
    await remember_vault(session, vault)


async def remember_vault(session: Session, vault: Vault) -> None:
    """Note which keys a server needs for this database from now on."""
    await session.run(
        "INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE"
        " SET value = excluded.value WHERE settings.value <> excluded.value",
        name=SETTING,
        value=Jsonb({"vault": _mark_of(vault), "newest": vault.newest}),
    )


async def _mark(session: Session) -> Json:
    mark: Json = await session.value("SELECT value FROM settings WHERE name = :name", name=SETTING)
    return mark


def _mark_of(vault: Vault) -> str:
    return hmac.new(vault.fingerprint_key, b"rackwright vault", hashlib.sha256).hexdigest()


async def _sealed_values(session: Session) -> list[Json]:
    """Some of the sealed values that are stored."""
    values: list[Json] = []
    for table, column in WRITTEN_BY_PEOPLE:
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


def _opens(vault: Vault, value: Json) -> bool:
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
