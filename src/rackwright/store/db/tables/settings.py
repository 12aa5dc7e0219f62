"""The table of settings."""

from sqlalchemy import Column, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from rackwright.store.db.tables.base import metadata

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", JSONB, nullable=False),
)
