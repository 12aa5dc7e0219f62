"""Tables of people and of what goes out in their name: users, grants, tokens, sessions, webhooks.

Secrets are never here: tokens and sessions are stored as hashes, passwords as argon2, a webhook's secret sealed.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from rackwright.domain.people import Scope, UserRole
from rackwright.store.db.tables import XID8, metadata


def _id() -> Column[int]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def _line(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=text("''"))


def _number(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _time(name: str, *, now: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=not now, server_default=text("now()") if now else None)


def _of(name: str, to: str, *, nullable: bool = False, index: bool = True) -> Column[int]:
    """What belongs to another row, and goes with it."""
    return Column(name, BigInteger, ForeignKey(to, ondelete="CASCADE"), nullable=nullable, index=index)


def _one_of(name: str, words: Iterable[str]) -> CheckConstraint:
    return CheckConstraint(f"{name} IN ({', '.join(repr(str(word)) for word in words)})", name=name)


users = Table(
    "users",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    _line("password_hash"),
    _line("full_name"),
    Column("disabled", Boolean, nullable=False, server_default=text("false")),
    _time("created_at", now=True),
    _one_of("role", UserRole),
)

grants = Table(
    "grants",
    metadata,
    _of("user_id", "users.id", index=False),
    _of("deployment_id", "deployments.id"),
    Column("role", Text, nullable=False),
    _time("created_at", now=True),
    PrimaryKeyConstraint("user_id", "deployment_id"),
    _one_of("role", [role for role in UserRole if role is not UserRole.NONE]),
)

tokens = Table(
    "tokens",
    metadata,
    _id(),
    _of("user_id", "users.id"),
    _line("name"),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("scope", Text, nullable=False, server_default=text("'admin'")),
    # A token for a subtree goes with it: without its limit it could do more than it was made for.
    _of("deployment_id", "deployments.id", nullable=True),
    _time("created_at", now=True),
    _time("expires_at"),
    _time("last_used_at"),
    _one_of("scope", Scope),
)

sessions = Table(
    "sessions",
    metadata,
    _id(),
    _of("user_id", "users.id"),
    Column("hash", LargeBinary, nullable=False, unique=True),
    _line("address"),
    _line("agent"),
    _time("created_at", now=True),
    _time("seen_at", now=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)

webhooks = Table(
    "webhooks",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("url", Text, nullable=False),
    Column("secret", JSONB, nullable=False),
    Column("kinds", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    Column("xid", XID8, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    _number("failures"),
    _line("error"),
    _time("not_before"),
    Column("worker", Text),
    _time("lease_until"),
    _time("created_at", now=True),
    _one_of("state", ["active", "stopped"]),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    _id(),
    _of("webhook_id", "webhooks.id", index=False),
    Column("xid", XID8, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    _number("attempt"),
    Column("status", Integer),
    _line("error"),
    _number("milliseconds"),
    _time("at", now=True),
    Index(None, "webhook_id", "id"),
)
