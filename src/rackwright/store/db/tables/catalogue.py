"""The tables of the catalogue: barclamps, their files, and the jigs, hammers, roles and attribs that they declare."""

from sqlalchemy import Boolean, CheckConstraint, Column, Computed, Double, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY

from rackwright.domain.catalogue import EXCLUDES, Flag
from rackwright.store.db.tables.base import (
    flag_column,
    id_column,
    json_column,
    line_column,
    metadata,
    now_column,
    number_column,
    quoted,
    refers_to,
    words_column,
)

barclamps = Table(
    "barclamps",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    line_column("display"),
    line_column("description"),
    line_column("version"),
    Column("parent", Text),
    line_column("path"),
    line_column("digest"),
    now_column("imported_at"),
)

# The files of barclamps, by the digest that `barclamps` and `runs` name. Not a foreign key: runs are history.
contents = Table(
    "contents",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("archive", LargeBinary, nullable=False),
    now_column("used_at"),
)

jigs = Table(
    "jigs",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    refers_to("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    Column("kind", Text, nullable=False),
    line_column("description"),
    flag_column("active", True),
    Column("client_role", Text),
)

hammers = Table(
    "hammers",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    refers_to("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    Column("kind", Text, nullable=False),
    number_column("priority"),
    line_column("description"),
)

roles = Table(
    "roles",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    refers_to("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    Column("jig", Text, nullable=False),
    line_column("description"),
    words_column("requires"),
    words_column("attaches"),
    words_column("wants"),
    words_column("provides"),
    words_column("conflicts"),
    words_column("flags"),
    words_column("hooks"),
    json_column("template"),
    Column("deadline", Double),
    Column("destructive", Boolean, Computed("'destructive' = ANY (flags)", persisted=True), nullable=False),
    Column("cluster", Boolean, Computed("'cluster' = ANY (flags)", persisted=True), nullable=False),
    CheckConstraint(f"flags <@ ARRAY[{quoted(Flag)}]", name="known_flags"),
    *(
        CheckConstraint(f"NOT flags @> ARRAY['{flag}', '{other}']", name=f"{flag}_excludes_{other}")
        for flag, other in EXCLUDES
    ),
)

attribs = Table(
    "attribs",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    refers_to("barclamp_id", "barclamps.id", index=True, ondelete="CASCADE"),
    refers_to("role_id", "roles.id", nullable=True, index=True, ondelete="CASCADE"),
    Column("map", ARRAY(Text), nullable=False),
    line_column("description"),
    json_column("schema", nullable=True),
    json_column("default", nullable=True),
    flag_column("has_default"),
    flag_column("secret"),
    CheckConstraint("cardinality(map) > 0", name="map"),
)
