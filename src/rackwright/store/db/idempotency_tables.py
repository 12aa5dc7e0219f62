"""The table of answers kept for requests that may be sent twice."""

from sqlalchemy import Column, DateTime, Index, LargeBinary, PrimaryKeyConstraint, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from rackwright.store.db.tables import metadata

kept_answers = Table(
    "kept_answers",
    metadata,
    Column("owner", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("status", SmallInteger),
    Column("headers", JSONB, nullable=False, server_default=text("'{}'")),
    Column("body", LargeBinary, nullable=False, server_default=text("''")),
    Column("at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("owner", "key"),
    Index("kept_answers_at_idx", "at"),
)
