"""challenges that machines used up"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "spent_challenges",
        sa.Column("challenge", sa.LargeBinary(), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("challenge", name=op.f("spent_challenges_pkey")),
    )
    op.create_index(op.f("spent_challenges_ends_at_idx"), "spent_challenges", ["ends_at"], unique=False)
