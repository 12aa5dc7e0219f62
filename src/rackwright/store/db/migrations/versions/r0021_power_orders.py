"""power orders

Orders for machines' controllers that the server which was asked could not reach, for others to carry out.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0021"
down_revision: str | None = "0020"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "power_orders",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("tried", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("taken_by", sa.Text(), nullable=True),
        sa.Column("power", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("acted_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "action IN ('boot disk', 'boot network', 'cycle', 'off', 'on', 'reset', 'status')",
            name=op.f("power_orders_action_check"),
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("power_orders_node_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("power_orders_pkey")),
    )
    op.create_index(op.f("power_orders_node_id_idx"), "power_orders", ["node_id"], unique=False)
