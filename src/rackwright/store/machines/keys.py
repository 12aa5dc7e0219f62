"""Keys by which machines and servers know each other: a machine's own, and those of the servers that may log in.

A machine has one Ed25519 key for both: it signs its registration with it, and its SSH shows it as the host's. So a
server that took the registration never has to trust a host key on first sight.
"""

import base64
import hashlib

from rackwright.store.db.session import Session
from rackwright.store.settings import write_setting

SERVER_KEY_PREFIX = "server_key/"
"""The prefix of the settings that hold the public key of one server each."""


def format_host_key(key: str) -> str:
    """Return a machine's key, which is raw and in base64, in the form in which OpenSSH writes host keys."""
    kind = b"ssh-ed25519"
    parts = (kind, base64.b64decode(key))
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{kind.decode()} {base64.b64encode(blob).decode()}"


def key_fingerprint(key: str) -> str:
    """Return the fingerprint of a machine's key, as `ssh-keygen -l` and the machine's own console show it."""
    return line_fingerprint(format_host_key(key))


def line_fingerprint(line: str) -> str:
    """Return the fingerprint of a public key that OpenSSH wrote, as `ssh-keygen -l` shows it."""
    blob = base64.b64decode(line.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def disk_mark(key: str) -> str:
    """Return the mark that an installer leaves on the disks it writes: of its key, which the installed system keeps.

    So it tells the disk of the last install from disks that were installed before.
    """
    return hashlib.sha256(base64.b64decode(key)).hexdigest()[:32]


async def pin_key(session: Session, node_id: int, key: str) -> None:
    """Make the machine that holds this key the node from now on. Any other that offered a key has to come again."""
    await session.run(
        "UPDATE nodes SET key = :key, host_key = :host_key, offered_key = NULL, offered_from = NULL, offered_at = NULL,"
        " offered_host_key = NULL WHERE id = :id",
        key=key,
        host_key=format_host_key(key),
        id=node_id,
    )


async def is_pinned(session: Session, node_id: int, key: str) -> bool:
    """Return whether the machine that holds this key is the node."""
    return bool(await session.value("SELECT key = :key FROM nodes WHERE id = :id", key=key, id=node_id))


async def publish_server_key(session: Session, server: str, key: str) -> None:
    """Have machines let this server in."""
    published = await session.value(
        "SELECT value #>> '{}' FROM settings WHERE name = :name", name=SERVER_KEY_PREFIX + server
    )
    if published != key:
        await write_setting(session, SERVER_KEY_PREFIX + server, key)


async def read_server_key_lines(session: Session) -> list[tuple[str, str]]:
    """Return each server with its public key, as in a file of authorized keys."""
    rows = await session.rows(
        "SELECT name, value #>> '{}' AS key FROM settings WHERE starts_with(name, :prefix) ORDER BY name",
        prefix=SERVER_KEY_PREFIX,
    )
    return [(row.name.removeprefix(SERVER_KEY_PREFIX), row.key) for row in rows]


async def read_server_keys(session: Session) -> list[str]:
    """Return the public keys of all servers, as in a file of authorized keys."""
    return [key for _, key in await read_server_key_lines(session)]
