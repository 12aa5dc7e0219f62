"""The tables of people: users, grants, tokens, sessions.

Secrets are never here: tokens and sessions are stored as hashes, passwords as argon2.
"""

from sqlalchemy import Column, DateTime, LargeBinary, PrimaryKeyConstraint, Table, Text, text

from rackwright.domain.people import Scope, UserRole
from rackwright.store.db.tables.base import (
    flag_column,
    id_column,
    line_column,
    metadata,
    now_column,
    one_of,
    refers_to,
    time_column,
)

users = Table(
    "users",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    line_column("password_hash"),
    line_column("full_name"),
    flag_column("disabled"),
    now_column("created_at"),
    one_of("role", UserRole),
)

grants = Table(
    "grants",
    metadata,
    refers_to("user_id", "users.id", ondelete="CASCADE"),
    refers_to("deployment_id", "deployments.id", index=True, ondelete="CASCADE"),
    Column("role", Text, nullable=False),
    now_column("created_at"),
    PrimaryKeyConstraint("user_id", "deployment_id"),
    one_of("role", [role for role in UserRole if role is not UserRole.NONE]),
)

tokens = Table(
    "tokens",
    metadata,
    id_column(),
    refers_to("user_id", "users.id", index=True, ondelete="CASCADE"),
    line_column("name"),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("scope", Text, nullable=False, server_default=text("'admin'")),
    # A token for a subtree of deployments is deleted with it: without that limit it could do more than it was made for.
    refers_to("deployment_id", "deployments.id", nullable=True, index=True, ondelete="CASCADE"),
    now_column("created_at"),
    time_column("expires_at"),
    time_column("last_used_at"),
    one_of("scope", Scope),
)

sessions = Table(
    "sessions",
    metadata,
    id_column(),
    refers_to("user_id", "users.id", index=True, ondelete="CASCADE"),
    Column("hash", LargeBinary, nullable=False, unique=True),
    line_column("address"),
    line_column("agent"),
    now_column("created_at"),
    now_column("seen_at"),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)
