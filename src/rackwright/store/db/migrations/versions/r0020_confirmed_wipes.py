"""confirmed wipes

What people agreed to lose on the disks of a machine, by the noderole that installs it. Nobody was asked until now, so
nothing is confirmed: what was committed and not installed yet is refused where there is data, until somebody confirms it.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "confirmed_wipes",
        sa.Column("node_role_id", sa.BigInteger(), nullable=False),
        sa.Column("disks", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_role_id"], ["node_roles.id"], name=op.f("confirmed_wipes_node_role_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_role_id", name=op.f("confirmed_wipes_pkey")),
    )
