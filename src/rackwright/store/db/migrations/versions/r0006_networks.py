"""networks"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "networks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("vlan", sa.Integer(), nullable=True),
        sa.Column("v4_subnet", postgresql.CIDR(), nullable=True),
        sa.Column("v6_subnet", postgresql.CIDR(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        postgresql.ExcludeConstraint(
            (sa.column("v4_subnet"), "&&"),
            using="gist",
            ops={"v4_subnet": "inet_ops"},
            name="networks_v4_subnet_excl",
        ),
        postgresql.ExcludeConstraint(
            (sa.column("v6_subnet"), "&&"),
            using="gist",
            ops={"v6_subnet": "inet_ops"},
            name="networks_v6_subnet_excl",
        ),
        sa.CheckConstraint("category IN ('admin', 'bmc', 'general')", name=op.f("networks_category_check")),
        sa.CheckConstraint("family(v4_subnet) = 4 AND family(v6_subnet) = 6", name=op.f("networks_families_check")),
        sa.CheckConstraint("v4_subnet IS NOT NULL OR v6_subnet IS NOT NULL", name=op.f("networks_has_a_subnet_check")),
        sa.CheckConstraint("vlan BETWEEN 1 AND 4094", name=op.f("networks_vlan_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("networks_pkey")),
        sa.UniqueConstraint("name", name=op.f("networks_name_key")),
    )
    op.create_table(
        "ranges",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("network_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("use", sa.Text(), nullable=False),
        sa.Column("first", postgresql.INET(), nullable=False),
        sa.Column("last", postgresql.INET(), nullable=False),
        sa.CheckConstraint("use IN ('admin', 'dynamic', 'host')", name=op.f("ranges_use_check")),
        sa.CheckConstraint("family(first) = family(last) AND first <= last", name=op.f("ranges_in_order_check")),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("ranges_network_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("ranges_pkey")),
        sa.UniqueConstraint("network_id", "name", name=op.f("ranges_network_id_name_key")),
    )
    op.create_table(
        "routers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("network_id", sa.BigInteger(), nullable=False),
        sa.Column("address", postgresql.INET(), nullable=False),
        sa.Column("preference", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("routers_network_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("routers_pkey")),
        sa.UniqueConstraint("network_id", "address", name=op.f("routers_network_id_address_key")),
    )
    op.create_table(
        "allocations",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("network_id", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("node_role_id", sa.BigInteger(), nullable=True),
        sa.Column("range_id", sa.BigInteger(), nullable=True),
        sa.Column("address", postgresql.INET(), nullable=False),
        sa.Column("family", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("family = family(address)", name=op.f("allocations_family_check")),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name=op.f("allocations_network_id_fkey")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("allocations_node_id_fkey")),
        sa.ForeignKeyConstraint(["range_id"], ["ranges.id"], name=op.f("allocations_range_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("allocations_pkey")),
        sa.UniqueConstraint("address", name=op.f("allocations_address_key")),
        sa.UniqueConstraint("network_id", "node_id", "family", name=op.f("allocations_network_id_node_id_family_key")),
    )
    op.create_index(op.f("allocations_node_id_idx"), "allocations", ["node_id"], unique=False)
    op.create_index(op.f("allocations_node_role_id_idx"), "allocations", ["node_role_id"], unique=False)
    op.create_index(op.f("allocations_range_id_idx"), "allocations", ["range_id"], unique=False)
    op.create_table(
        "range_gaps",
        sa.Column("range_id", sa.BigInteger(), nullable=False),
        sa.Column("first", postgresql.INET(), nullable=False),
        sa.Column("last", postgresql.INET(), nullable=False),
        sa.CheckConstraint("first <= last", name=op.f("range_gaps_in_order_check")),
        sa.ForeignKeyConstraint(["range_id"], ["ranges.id"], name=op.f("range_gaps_range_id_fkey"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("range_id", "first", name=op.f("range_gaps_pkey")),
    )
    op.drop_constraint(op.f("hook_calls_subject_check"), "hook_calls")
    op.create_check_constraint(
        op.f("hook_calls_subject_check"),
        "hook_calls",
        "subject IN ('node', 'noderole', 'deployment', 'network', 'allocation')",
    )
