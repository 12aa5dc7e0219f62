"""approved addresses

What people said of addresses before this revision is nobody's approval: a node that was never reached needs a host key,
or an administrator, before the server logs in there for the first time. Those that were reached have their key pinned.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("approved_address", sa.Text(), nullable=True))
    op.create_index("nodes_registered_address", "nodes", [sa.text("(discovery ->> 'address')")])
    op.create_index("nodes_hinted_address", "nodes", [sa.text("(hint ->> 'address')")])
    op.create_index("nodes_host_key", "nodes", ["host_key"])
