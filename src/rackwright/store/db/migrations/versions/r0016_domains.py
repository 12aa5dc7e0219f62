"""domains

The domains that were served by the names of nodes until now stay served, for everybody, but whole top-level domains that
somebody else has: an administrator gives them to deployments, or takes them away.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_PRIVATE = ("internal", "intranet", "private", "corp", "home", "lan", "local", "test", "example", "invalid")


def upgrade() -> None:
    op.create_table(
        "domains",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("deployment_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("name = lower(name)", name=op.f("domains_name_is_lower_case_check")),
        sa.ForeignKeyConstraint(
            ["deployment_id"], ["deployments.id"], name=op.f("domains_deployment_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("domains_pkey")),
        sa.UniqueConstraint("name", name=op.f("domains_name_key")),
    )
    op.create_index(op.f("domains_deployment_id_idx"), "domains", ["deployment_id"], unique=False)
    private = ", ".join(f"'{name}'" for name in _PRIVATE)
    op.execute(
        f"""
        INSERT INTO domains (name, deployment_id)
        SELECT DISTINCT zone.name, root.id
        FROM (SELECT substring(name FROM position('.' IN name) + 1) AS name FROM nodes WHERE NOT system
              UNION SELECT 'internal') zone, deployments root
        WHERE root.parent_id IS NULL AND (zone.name LIKE '%.%' OR zone.name IN ({private}))
        """
    )
