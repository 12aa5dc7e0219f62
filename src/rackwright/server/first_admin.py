"""The first administrator of a new server, and the files in its home that hold the password and the token."""

import secrets
from pathlib import Path

from rackwright.api.auth.passwords import Passwords
from rackwright.private_files import write_private_file
from rackwright.store.db.session import Session
from rackwright.store.people.users import ensure_admin
from rackwright.store.store import Store

TOKEN_FILE = "admin-token"  # noqa: S105  # the file's name, not a secret
PASSWORD_FILE = "admin-password"  # noqa: S105  # likewise


async def create_first_admin(store: Store, passwords: Passwords, home: Path) -> None:
    """Create the user `admin` if there is no user yet.

    Password and token are written down for the owner of this host, and nowhere else.
    """
    async with store.read() as session:
        if await session.value("SELECT 1 FROM users LIMIT 1"):
            return
    password = secrets.token_urlsafe(15)
    password_hash = await passwords.hash(password)

    async def create(session: Session) -> None:
        # The files come before the commit: if the server is killed in between, there is no user yet, and the next start
        # makes both anew.
        token = await ensure_admin(session, password_hash)
        if token is not None:
            write_secret(home / TOKEN_FILE, token)
            write_secret(home / PASSWORD_FILE, password)

    await store.change(create, actor="first start")


def write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private_file(path, f"{secret}\n".encode())
