"""upgrades due

Whether an import changed what noderoles of a deployment should stand on, so that its next commit must look. Of what was
imported until now nobody knows: all look once.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0019"
down_revision: str | None = "0018"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "deployments", sa.Column("upgrade_due", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.execute("UPDATE deployments SET upgrade_due = parent_id IS NOT NULL")
