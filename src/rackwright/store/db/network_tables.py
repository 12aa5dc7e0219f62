"""The tables of networks, beside those in `tables.py`.

Subnets of two networks never overlap, by an exclusion constraint; so one unique address column is enough to say that
no address is given twice. `range_gaps` holds what is free of each range as intervals: the lowest free address is the
first row of an index, however large the range is and however much of it is taken.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, PrimaryKeyConstraint, Table, Text, UniqueConstraint
from sqlalchemy.dialects.postgresql import CIDR, INET, ExcludeConstraint

from rackwright.domain.networks.networks import Category, Use
from rackwright.store.db.tables import _id, _line, _now, _quoted, _refers, metadata

networks = Table(
    "networks",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    _line("description"),
    Column("category", Text, nullable=False),
    Column("vlan", Integer),
    Column("v4_subnet", CIDR),
    Column("v6_subnet", CIDR),
    _now("created_at"),
    CheckConstraint(f"category IN ({_quoted(Category)})", name="category"),
    CheckConstraint("vlan BETWEEN 1 AND 4094", name="vlan"),
    CheckConstraint("family(v4_subnet) = 4 AND family(v6_subnet) = 6", name="families"),
    CheckConstraint("v4_subnet IS NOT NULL OR v6_subnet IS NOT NULL", name="has_a_subnet"),
    ExcludeConstraint(("v4_subnet", "&&"), using="gist", ops={"v4_subnet": "inet_ops"}, name="networks_v4_subnet_excl"),
    ExcludeConstraint(("v6_subnet", "&&"), using="gist", ops={"v6_subnet": "inet_ops"}, name="networks_v6_subnet_excl"),
)

ranges = Table(
    "ranges",
    metadata,
    _id(),
    _refers("network_id", "networks.id", ondelete="CASCADE"),
    Column("name", Text, nullable=False),
    Column("use", Text, nullable=False),
    Column("first", INET, nullable=False),
    Column("last", INET, nullable=False),
    UniqueConstraint("network_id", "name"),
    CheckConstraint(f"use IN ({_quoted(Use)})", name="use"),
    CheckConstraint("family(first) = family(last) AND first <= last", name="in_order"),
)

range_gaps = Table(
    "range_gaps",
    metadata,
    _refers("range_id", "ranges.id", ondelete="CASCADE"),
    Column("first", INET, nullable=False),
    Column("last", INET, nullable=False),
    PrimaryKeyConstraint("range_id", "first"),
    CheckConstraint("first <= last", name="in_order"),
)

routers = Table(
    "routers",
    metadata,
    _id(),
    _refers("network_id", "networks.id", ondelete="CASCADE"),
    Column("address", INET, nullable=False),
    Column("preference", Integer, nullable=False),
    UniqueConstraint("network_id", "address"),
)

# No cascade from nodes and noderoles: whoever takes them away frees the address, which also tells the hooks.
allocations = Table(
    "allocations",
    metadata,
    _id(),
    _refers("network_id", "networks.id"),
    _refers("node_id", "nodes.id", index=True),
    # The noderole it goes with; null if a person made it.
    Column("node_role_id", BigInteger, index=True),
    # Null for an address outside of all ranges that somebody asked for.
    _refers("range_id", "ranges.id", nullable=True, index=True),
    Column("address", INET, nullable=False, unique=True),
    Column("family", Integer, nullable=False),
    _now("created_at"),
    UniqueConstraint("network_id", "node_id", "family"),
    CheckConstraint("family = family(address)", name="family"),
)
