"""calls of hooks that say only what they are about, and who said what of a machine"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "hook_views",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("view", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("hook_views_pkey")),
    )
    op.add_column("hook_calls", sa.Column("view_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(op.f("hook_calls_view_id_fkey"), "hook_calls", "hook_views", ["view_id"], ["id"])
    op.create_index(
        "hook_calls_view_idx",
        "hook_calls",
        ["view_id"],
        unique=False,
        postgresql_where=sa.text("view_id IS NOT NULL"),
    )
    # Calls that wait have the whole view in them; of nodes that are gone it is all that there is.
    op.execute("ALTER TABLE hook_views ADD COLUMN call_id bigint")
    op.execute(
        "INSERT INTO hook_views (view, call_id) SELECT view, id FROM hook_calls"
        " WHERE subject = 'node' AND hook IN ('on_node_delete', 'node_delete')"
    )
    op.execute(
        "UPDATE hook_calls h SET view_id = v.id, view = jsonb_build_object('name', h.view -> 'name')"
        " FROM hook_views v WHERE v.call_id = h.id"
    )
    op.execute("ALTER TABLE hook_views DROP COLUMN call_id")
    op.add_column(
        "nodes",
        sa.Column(
            "reported_by", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )
    # What is known came from sledgehammer, but for what an installed system says, and for what no machine says.
    op.execute(
        """
        UPDATE nodes n SET reported_by = coalesce((
            SELECT jsonb_object_agg(key, CASE WHEN n.observed_bootenv = 'local' AND key IN ('root', 'kernel', 'address')
                                              THEN 'local' ELSE 'sledgehammer' END)
            FROM jsonb_object_keys(n.discovery) AS key WHERE key <> 'mesh'), '{}')
        WHERE n.key IS NOT NULL
        """
    )
