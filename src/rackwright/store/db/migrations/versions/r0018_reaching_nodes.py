"""reaching nodes

The host key that a machine showed and was refused for, so that a person can pin it by its fingerprint; whether the first
one may be trusted, which administrators said of every address until now; and since when a machine was asked to shut down.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | None = "0017"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("trust_first_key", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("nodes", sa.Column("offered_host_key", sa.Text(), nullable=True))
    op.add_column("nodes", sa.Column("shutdown_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE nodes SET trust_first_key = true WHERE approved_address IS NOT NULL AND host_key IS NULL")
