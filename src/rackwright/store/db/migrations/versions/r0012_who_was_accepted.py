"""who was accepted, and by which key a machine may come"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# A node is deleted by a clock only if it waits, so none may wait that could have been accepted: what people gave a
# wish, an address or a role to, what ever ran, was installed or was told to boot something, and what somebody is on
# record to have let in, was accepted.
_CLEARLY_NEVER_ACCEPTED = """
    NOT n.available AND NOT n.admin AND NOT n.system AND n.key IS NOT NULL AND n.seen_at IS NOT NULL
    AND n.hint = '{}' AND n.bootenv = '' AND n.description = ''
    AND NOT EXISTS (SELECT FROM node_roles nr JOIN deployments d ON d.id = nr.deployment_id
                    WHERE nr.node_id = n.id AND (nr.state = 0 OR d.parent_id IS NOT NULL))
    AND NOT EXISTS (SELECT FROM runs r WHERE r.node_id = n.id)
    AND NOT EXISTS (SELECT FROM install_attempts a WHERE a.node_id = n.id)
    AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id)
    AND NOT EXISTS (SELECT FROM events e WHERE e.node_id = n.id AND e.kind = 'node.updated'
                    AND e.data -> 'changed' @> '["available"]')
"""


def upgrade() -> None:
    op.add_column("nodes", sa.Column("waiting_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("nodes", sa.Column("registered_from", sa.Text(), nullable=True))
    op.add_column(
        "nodes", sa.Column("identity_confirmed", sa.Boolean(), server_default=sa.text("true"), nullable=False)
    )
    op.add_column("nodes", sa.Column("offered_key", sa.Text(), nullable=True))
    op.add_column("nodes", sa.Column("offered_from", sa.Text(), nullable=True))
    op.add_column("nodes", sa.Column("offered_at", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        f"UPDATE nodes n SET waiting_since = created_at, registered_from = discovery ->> 'address',"
        f" identity_confirmed = false WHERE {_CLEARLY_NEVER_ACCEPTED}"
    )
    # Somebody who may write in one deployment only may have claimed the MAC of a machine that was never seen.
    op.execute(
        """
        UPDATE nodes n SET identity_confirmed = false FROM deployments d
        WHERE d.id = n.deployment_id AND d.parent_id IS NOT NULL AND n.key IS NULL AND NOT n.system AND NOT n.admin
          AND (n.uuid IS NOT NULL OR EXISTS (SELECT FROM node_macs m WHERE m.node_id = n.id))
        """
    )
    op.create_check_constraint(
        op.f("nodes_who_waits_is_not_let_in_check"),
        "nodes",
        "waiting_since IS NULL OR NOT (available OR system OR admin)",
    )
    op.create_index(
        "nodes_waiting_idx",
        "nodes",
        ["registered_from"],
        unique=False,
        postgresql_where=sa.text("waiting_since IS NOT NULL"),
    )
    op.drop_column("nodes", "may_rekey")
