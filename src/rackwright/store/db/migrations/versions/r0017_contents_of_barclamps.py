"""the files of barclamps

Those of barclamps that were imported before are not here: the ones that come with the server are imported at its next
start, and the others have to be imported again. Until then their roles end in ERROR.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "contents",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("archive", sa.LargeBinary(), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("contents_pkey")),
    )
    op.add_column("runs", sa.Column("content", sa.Text(), server_default=sa.text("''"), nullable=False))
    op.execute("UPDATE barclamps SET digest = ''")
