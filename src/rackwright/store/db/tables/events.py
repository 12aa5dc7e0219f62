"""The tables of events: the outbox, webhooks and their deliveries, and responses kept for requests sent twice.

A webhook's secret is sealed.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from rackwright.store.db.tables.base import (
    XID8,
    id_column,
    json_column,
    line_column,
    metadata,
    now_column,
    number_column,
    one_of,
    refers_to,
    time_column,
    words_column,
)

events = Table(
    "events",
    metadata,
    Column("xid", XID8, nullable=False, server_default=text("pg_current_xact_id()")),
    Column("id", BigInteger, Identity(), nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject_id", BigInteger),
    Column("node_id", BigInteger),
    Column("deployment_id", BigInteger),
    json_column("data", nullable=True),
    Column("actor", Text, server_default=text("current_setting('rackwright.actor', true)")),
    Column("trace", Text, server_default=text("current_setting('rackwright.trace', true)")),
    now_column("at"),
    PrimaryKeyConstraint("xid", "id"),
)

webhooks = Table(
    "webhooks",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    Column("url", Text, nullable=False),
    Column("secret", JSONB, nullable=False),
    words_column("kinds"),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    Column("xid", XID8, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    number_column("failures"),
    line_column("error"),
    time_column("not_before"),
    Column("worker", Text),
    time_column("lease_until"),
    now_column("created_at"),
    one_of("state", ["active", "stopped"]),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    id_column(),
    refers_to("webhook_id", "webhooks.id", ondelete="CASCADE"),
    Column("xid", XID8, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    number_column("attempt"),
    Column("status", Integer),
    line_column("error"),
    number_column("milliseconds"),
    now_column("at"),
    Index(None, "webhook_id", "id"),
)

kept_answers = Table(
    "kept_answers",
    metadata,
    Column("owner", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("status", SmallInteger),
    json_column("headers"),
    Column("body", LargeBinary, nullable=False, server_default=text("''")),
    now_column("at"),
    PrimaryKeyConstraint("owner", "key"),
    Index("kept_answers_at_idx", "at"),
)
