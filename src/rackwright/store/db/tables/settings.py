"""The table of settings that change at run time."""

from sqlalchemy import Column, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from rackwright.store.db.tables.base import metadata

settings = Table(
    "settings",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", JSONB, nullable=False),
)
