"""The tables of hooks: calls that are still to be made, and the last state of nodes that are gone."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from rackwright.store.db.tables.base import (
    flag_column,
    id_column,
    json_column,
    line_column,
    metadata,
    now_column,
    number_column,
    time_column,
)

# The last state of a node that is gone, stored once for all calls that tell of it.
hook_views = Table("hook_views", metadata, id_column(), Column("view", JSONB, nullable=False))

# Calls of hooks and of jigs' node methods that are still to be made, or were given up. A call that was made is deleted.
# A call that `blocks` keeps work from starting on its node and among the children of its noderole.
hook_calls = Table(
    "hook_calls",
    metadata,
    id_column(),
    Column("kind", Text, nullable=False),
    Column("handler", Text, nullable=False),
    Column("hook", Text, nullable=False),
    # No foreign keys: what a call is about may be gone, and the call is made all the same.
    Column("subject", Text, nullable=False),
    Column("subject_id", BigInteger, nullable=False),
    Column("node_id", BigInteger),
    flag_column("blocks"),
    json_column("view"),
    Column("view_id", BigInteger, ForeignKey("hook_views.id")),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    number_column("attempts"),
    time_column("not_before"),
    Column("worker", Text),
    time_column("lease_until"),
    line_column("error"),
    now_column("queued_at"),
    Column("trace", Text, server_default=text("current_setting('rackwright.trace', true)")),
    CheckConstraint("kind IN ('role', 'jig')", name="kind"),
    CheckConstraint("subject IN ('node', 'noderole', 'deployment', 'network', 'allocation')", name="subject"),
    CheckConstraint("state IN ('waiting', 'running', 'failed')", name="state"),
    CheckConstraint("NOT (blocks AND state = 'failed')", name="given_up_blocks_nothing"),
    CheckConstraint("NOT blocks OR subject = 'noderole'", name="only_noderole_hooks_block"),
    Index("hook_calls_order_idx", "subject_id", "subject", "handler", "id"),
    Index("hook_calls_queue_idx", "id", postgresql_where=text("state <> 'failed'")),
    Index("hook_calls_view_idx", "view_id", postgresql_where=text("view_id IS NOT NULL")),
    Index("hook_calls_blocks_node_idx", "node_id", postgresql_where=text("blocks")),
    Index("hook_calls_blocks_node_role_idx", "subject_id", postgresql_where=text("blocks")),
    postgresql_with={"fillfactor": "70"},
)
