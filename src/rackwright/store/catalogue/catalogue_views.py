"""Read barclamps, jigs, hammers, roles and attribs as people see them, each a record with its id."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from rackwright.domain.catalogue import Flag, Json, JsonObject
from rackwright.domain.errors import NotFound
from rackwright.store.db.listing import SEEN_BY_EVERY_READER, Column, Filter, Listing, key_id
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility

R = TypeVar("R")


@dataclass(frozen=True)
class CatalogueView(Generic[R]):
    """How one kind of thing in the catalogue is read: its query, the record of a row, and what lists of it offer."""

    kind: str
    record: type[R]
    query: str
    listing: Listing

    async def select(self, session: Session, where: str, **values: object) -> list[R]:
        """Return the records of the rows that fit `where`, which follows the query."""
        return [self.record(**row._mapping) for row in await session.rows(f"{self.query} {where}", **values)]

    async def read(self, session: Session, name_or_id: str, visible: Visibility) -> R:
        """Return the one record with this name or id; NotFound if there is none that the caller may see."""
        named = f"({self.listing.columns['name'].sql} = :name OR {self.listing.id} = :id)"
        where = f"WHERE {named} AND {visible.condition(self.listing.seen)}"
        records = await self.select(session, where, name=name_or_id, id=key_id(name_or_id), **visible.values)
        if not records:
            raise NotFound(self.kind, name_or_id)
        return records[0]


# --- barclamps


@dataclass(frozen=True)
class BarclampRecord:
    id: int
    name: str
    display: str
    description: str
    version: str
    parent: str | None
    digest: str
    imported_at: datetime
    roles: list[str]
    jigs: list[str]


BARCLAMPS = CatalogueView(
    "barclamp",
    BarclampRecord,
    """
SELECT b.id, b.name, b.display, b.description, b.version, b.parent, b.digest, b.imported_at,
       ARRAY(SELECT name FROM roles r WHERE r.barclamp_id = b.id ORDER BY 1) AS roles,
       ARRAY(SELECT name FROM jigs j WHERE j.barclamp_id = b.id ORDER BY 1) AS jigs
FROM barclamps b
""",
    Listing(
        "barclamps",
        {
            "id": Column("b.id", Filter.NUMBER, sort="bigint"),
            "name": Column("b.name", sort="text"),
            "parent": Column("b.parent"),
            "version": Column("b.version"),
        },
        default="name",
        id="b.id",
        seen=SEEN_BY_EVERY_READER,
    ),
)


# --- jigs and hammers


@dataclass(frozen=True)
class JigRecord:
    id: int
    name: str
    barclamp: str
    kind: str
    description: str
    active: bool
    client_role: str | None


JIGS = CatalogueView(
    "jig",
    JigRecord,
    """
SELECT j.id, j.name, b.name AS barclamp, j.kind, j.description, j.active, j.client_role
FROM jigs j JOIN barclamps b ON b.id = j.barclamp_id
""",
    Listing(
        "jigs",
        {
            "id": Column("j.id", Filter.NUMBER, sort="bigint"),
            "name": Column("j.name", sort="text"),
            "barclamp": Column("b.name", Filter.REFERENCE, "b.id", sort="text"),
            "kind": Column("j.kind"),
            "active": Column("j.active", Filter.FLAG),
        },
        default="name",
        id="j.id",
        seen=SEEN_BY_EVERY_READER,
    ),
)


@dataclass(frozen=True)
class HammerRecord:
    id: int
    name: str
    barclamp: str
    kind: str
    priority: int
    description: str


HAMMERS = CatalogueView(
    "hammer",
    HammerRecord,
    """
SELECT h.id, h.name, b.name AS barclamp, h.kind, h.priority, h.description
FROM hammers h JOIN barclamps b ON b.id = h.barclamp_id
""",
    Listing(
        "hammers",
        {
            "id": Column("h.id", Filter.NUMBER, sort="bigint"),
            "name": Column("h.name", sort="text"),
            "barclamp": Column("b.name", Filter.REFERENCE, "b.id", sort="text"),
            "kind": Column("h.kind"),
            "priority": Column("h.priority", Filter.NUMBER, sort="bigint"),
        },
        default="name",
        id="h.id",
        seen=SEEN_BY_EVERY_READER,
    ),
)


# --- roles


@dataclass(frozen=True)
class RoleRecord:
    id: int
    name: str
    barclamp: str
    jig: str
    description: str
    requires: list[str]
    attaches: list[str]
    wants: list[str]
    provides: list[str]
    conflicts: list[str]
    flags: list[str]
    hooks: list[str]
    template: JsonObject
    deadline: float | None
    attribs: list[str]


ROLES = CatalogueView(
    "role",
    RoleRecord,
    """
SELECT r.id, r.name, b.name AS barclamp, r.jig, r.description, r.requires, r.attaches, r.wants, r.provides,
       r.conflicts, r.flags, r.hooks, r.template, r.deadline,
       ARRAY(SELECT name FROM attribs a WHERE a.role_id = r.id ORDER BY 1) AS attribs
FROM roles r JOIN barclamps b ON b.id = r.barclamp_id
""",
    Listing(
        "roles",
        {
            "id": Column("r.id", Filter.NUMBER, sort="bigint"),
            "name": Column("r.name", sort="text"),
            "barclamp": Column("b.name", Filter.REFERENCE, "b.id", sort="text"),
            "jig": Column("r.jig", sort="text"),
            "flag": Column("r.flags", Filter.WORDS, says=f"Flags ({', '.join(Flag)})"),
            "requires": Column("r.requires", Filter.WORDS),
            "provides": Column("r.provides", Filter.WORDS),
            "conflicts": Column("r.conflicts", Filter.WORDS),
        },
        default="name",
        id="r.id",
        seen=SEEN_BY_EVERY_READER,
    ),
)


# --- attribs


@dataclass(frozen=True)
class AttribRecord:
    id: int
    name: str
    barclamp: str
    role: str | None
    map: list[str]
    description: str
    schema: JsonObject | None
    default: Json
    has_default: bool
    secret: bool


ATTRIBS = CatalogueView(
    "attrib",
    AttribRecord,
    """
SELECT a.id, a.name, b.name AS barclamp, r.name AS role, a.map, a.description, a.schema, a."default", a.has_default,
       a.secret
FROM attribs a JOIN barclamps b ON b.id = a.barclamp_id LEFT JOIN roles r ON r.id = a.role_id
""",
    Listing(
        "attribs",
        {
            "id": Column("a.id", Filter.NUMBER, sort="bigint"),
            "name": Column("a.name", sort="text"),
            "barclamp": Column("b.name", Filter.REFERENCE, "b.id", sort="text"),
            "role": Column("r.name", Filter.REFERENCE, "r.id", says="The role that owns it"),
            "of_node": Column("(a.role_id IS NULL)", Filter.FLAG, says="Owned by nodes, and by no role"),
            "secret": Column("a.secret", Filter.FLAG),
            "writable": Column("(a.schema IS NOT NULL)", Filter.FLAG),
        },
        default="name",
        id="a.id",
        seen=SEEN_BY_EVERY_READER,
    ),
)
