"""The tables of networks, their addresses, and the names under which nodes are served by DNS.

Subnets of two networks never overlap, by an exclusion constraint; so one unique address column is enough to ensure that
no address is given twice. `range_gaps` holds the free addresses of each range as intervals: the lowest free address is
the first row of an index, however large the range is and however much of it is taken.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, PrimaryKeyConstraint, Table, Text, UniqueConstraint
from sqlalchemy.dialects.postgresql import CIDR, INET, ExcludeConstraint

from rackwright.domain.networks.networks import Category, Use
from rackwright.store.db.tables.base import id_column, line_column, metadata, now_column, quoted, refers_to

networks = Table(
    "networks",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    line_column("description"),
    Column("category", Text, nullable=False),
    Column("vlan", Integer),
    Column("v4_subnet", CIDR),
    Column("v6_subnet", CIDR),
    now_column("created_at"),
    CheckConstraint(f"category IN ({quoted(Category)})", name="category"),
    CheckConstraint("vlan BETWEEN 1 AND 4094", name="vlan"),
    CheckConstraint("family(v4_subnet) = 4 AND family(v6_subnet) = 6", name="families"),
    CheckConstraint("v4_subnet IS NOT NULL OR v6_subnet IS NOT NULL", name="has_a_subnet"),
    ExcludeConstraint(("v4_subnet", "&&"), using="gist", ops={"v4_subnet": "inet_ops"}, name="networks_v4_subnet_excl"),
    ExcludeConstraint(("v6_subnet", "&&"), using="gist", ops={"v6_subnet": "inet_ops"}, name="networks_v6_subnet_excl"),
)

ranges = Table(
    "ranges",
    metadata,
    id_column(),
    refers_to("network_id", "networks.id", ondelete="CASCADE"),
    Column("name", Text, nullable=False),
    Column("use", Text, nullable=False),
    Column("first", INET, nullable=False),
    Column("last", INET, nullable=False),
    UniqueConstraint("network_id", "name"),
    CheckConstraint(f"use IN ({quoted(Use)})", name="use"),
    CheckConstraint("family(first) = family(last) AND first <= last", name="in_order"),
)

range_gaps = Table(
    "range_gaps",
    metadata,
    refers_to("range_id", "ranges.id", ondelete="CASCADE"),
    Column("first", INET, nullable=False),
    Column("last", INET, nullable=False),
    PrimaryKeyConstraint("range_id", "first"),
    CheckConstraint("first <= last", name="in_order"),
)

routers = Table(
    "routers",
    metadata,
    id_column(),
    refers_to("network_id", "networks.id", ondelete="CASCADE"),
    Column("address", INET, nullable=False),
    Column("preference", Integer, nullable=False),
    UniqueConstraint("network_id", "address"),
)

# No cascade from nodes and noderoles: the code that deletes them frees the address, and so calls the hooks.
allocations = Table(
    "allocations",
    metadata,
    id_column(),
    refers_to("network_id", "networks.id"),
    refers_to("node_id", "nodes.id", index=True),
    # The noderole that the address belongs to; null if a person made the allocation.
    Column("node_role_id", BigInteger, index=True),
    # Null for an address outside of all ranges that a person asked for.
    refers_to("range_id", "ranges.id", nullable=True, index=True),
    Column("address", INET, nullable=False, unique=True),
    Column("family", Integer, nullable=False),
    now_column("created_at"),
    UniqueConstraint("network_id", "node_id", "family"),
    CheckConstraint("family = family(address)", name="family"),
)

# The DNS domains under which the nodes of a deployment have their names.
domains = Table(
    "domains",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    refers_to("deployment_id", "deployments.id", index=True, ondelete="CASCADE"),
    now_column("created_at"),
    CheckConstraint("name = lower(name)", name="name_is_lower_case"),
)
