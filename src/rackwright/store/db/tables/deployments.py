"""The tables of deployments: their roles, and their snapshots with what was committed or is proposed."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from rackwright.store.db.tables.base import (
    flag_column,
    id_column,
    json_column,
    line_column,
    metadata,
    now_column,
    refers_to,
    time_column,
)

deployments = Table(
    "deployments",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    line_column("description"),
    refers_to("parent_id", "deployments.id", nullable=True, index=True),
    Column(
        "phantom_id",
        BigInteger,
        ForeignKey("nodes.id", deferrable=True, initially="DEFERRED"),
        nullable=False,
        unique=True,
    ),
    flag_column("held"),
    flag_column("upgrade_due"),
    now_column("created_at"),
    Index("deployments_one_root", text("(true)"), unique=True, postgresql_where=text("parent_id IS NULL")),
    CheckConstraint("parent_id <> id", name="not_its_own_parent"),
)

snapshots = Table(
    "snapshots",
    metadata,
    id_column(),
    refers_to("deployment_id", "deployments.id", index=True, ondelete="CASCADE"),
    Column("state", Text, nullable=False),
    Column("base_id", BigInteger),
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    Column("worked_out_at", BigInteger),
    line_column("comment"),
    now_column("created_at"),
    time_column("committed_at"),
    CheckConstraint("state IN ('proposed', 'head', 'archived')", name="state"),
    CheckConstraint("(state = 'proposed') = (committed_at IS NULL)", name="committed_at"),
    Index("snapshots_one_proposed", "deployment_id", unique=True, postgresql_where=text("state = 'proposed'")),
    Index("snapshots_one_head", "deployment_id", unique=True, postgresql_where=text("state = 'head'")),
)

snapshot_roles = Table(
    "snapshot_roles",
    metadata,
    refers_to("snapshot_id", "snapshots.id", ondelete="CASCADE"),
    Column("role_id", BigInteger, nullable=False),
    Column("role_name", Text, nullable=False),
    json_column("data"),
    PrimaryKeyConstraint("snapshot_id", "role_id"),
)

# No foreign key to nodes and roles: an archived snapshot outlives them, and their names tell what cannot be restored.
snapshot_bindings = Table(
    "snapshot_bindings",
    metadata,
    refers_to("snapshot_id", "snapshots.id", ondelete="CASCADE"),
    Column("node_id", BigInteger, nullable=False),
    Column("role_id", BigInteger, nullable=False),
    Column("node_name", Text, nullable=False),
    Column("role_name", Text, nullable=False),
    flag_column("asked"),
    json_column("data"),
    PrimaryKeyConstraint("snapshot_id", "node_id", "role_id"),
)

deployment_roles = Table(
    "deployment_roles",
    metadata,
    id_column(),
    refers_to("deployment_id", "deployments.id", ondelete="CASCADE"),
    refers_to("role_id", "roles.id", index=True),
    json_column("wall"),
    json_column("data"),
    UniqueConstraint("deployment_id", "role_id"),
)
