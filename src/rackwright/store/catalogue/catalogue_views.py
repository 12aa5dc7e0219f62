"""Read barclamps, jigs, hammers, roles and attribs as people see them, each a record with its id."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from rackwright.domain.catalogue import Flag, Json, JsonObject
from rackwright.domain.errors import NotFound
from rackwright.store.db.listing import SEEN_BY_EVERY_READER, Column, Filter, Listing, key_id
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility

R = TypeVar("R")


async def _select(session: Session, record: type[R], select: str, where: str, values: dict[str, Any]) -> list[R]:
    return [record(**row._mapping) for row in await session.rows(f"{select} {where}", **values)]


def _where_named(listing: Listing, visible: Visibility) -> str:
    seen = visible.condition(listing.seen)
    return f"WHERE ({listing.columns['name'].sql} = :name OR {listing.id} = :id) AND {seen}"


def _name_values(name_or_id: str, visible: Visibility) -> dict[str, object]:
    return {"name": name_or_id, "id": key_id(name_or_id), **visible.values}


def _first_record(kind: str, name_or_id: str, records: list[R]) -> R:
    if not records:
        raise NotFound(kind, name_or_id)
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


_BARCLAMPS = """
SELECT b.id, b.name, b.display, b.description, b.version, b.parent, b.digest, b.imported_at,
       ARRAY(SELECT name FROM roles r WHERE r.barclamp_id = b.id ORDER BY 1) AS roles,
       ARRAY(SELECT name FROM jigs j WHERE j.barclamp_id = b.id ORDER BY 1) AS jigs
FROM barclamps b
"""

BARCLAMPS = Listing(
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
)


async def select_barclamps(session: Session, where: str, **values: object) -> list[BarclampRecord]:
    return await _select(session, BarclampRecord, _BARCLAMPS, where, values)


async def view_barclamp(session: Session, name_or_id: str, visible: Visibility) -> BarclampRecord:
    records = await select_barclamps(session, _where_named(BARCLAMPS, visible), **_name_values(name_or_id, visible))
    return _first_record("barclamp", name_or_id, records)


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


_JIGS = """
SELECT j.id, j.name, b.name AS barclamp, j.kind, j.description, j.active, j.client_role
FROM jigs j JOIN barclamps b ON b.id = j.barclamp_id
"""

JIGS = Listing(
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
)


async def select_jigs(session: Session, where: str, **values: object) -> list[JigRecord]:
    return await _select(session, JigRecord, _JIGS, where, values)


async def view_jig(session: Session, name_or_id: str, visible: Visibility) -> JigRecord:
    records = await select_jigs(session, _where_named(JIGS, visible), **_name_values(name_or_id, visible))
    return _first_record("jig", name_or_id, records)


@dataclass(frozen=True)
class HammerRecord:
    id: int
    name: str
    barclamp: str
    kind: str
    priority: int
    description: str


_HAMMERS = """
SELECT h.id, h.name, b.name AS barclamp, h.kind, h.priority, h.description
FROM hammers h JOIN barclamps b ON b.id = h.barclamp_id
"""

HAMMERS = Listing(
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
)


async def select_hammers(session: Session, where: str, **values: object) -> list[HammerRecord]:
    return await _select(session, HammerRecord, _HAMMERS, where, values)


async def view_hammer(session: Session, name_or_id: str, visible: Visibility) -> HammerRecord:
    records = await select_hammers(session, _where_named(HAMMERS, visible), **_name_values(name_or_id, visible))
    return _first_record("hammer", name_or_id, records)


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


_ROLES = """
SELECT r.id, r.name, b.name AS barclamp, r.jig, r.description, r.requires, r.attaches, r.wants, r.provides,
       r.conflicts, r.flags, r.hooks, r.template, r.deadline,
       ARRAY(SELECT name FROM attribs a WHERE a.role_id = r.id ORDER BY 1) AS attribs
FROM roles r JOIN barclamps b ON b.id = r.barclamp_id
"""

ROLES = Listing(
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
)


async def select_roles(session: Session, where: str, **values: object) -> list[RoleRecord]:
    return await _select(session, RoleRecord, _ROLES, where, values)


async def view_role(session: Session, name_or_id: str, visible: Visibility) -> RoleRecord:
    records = await select_roles(session, _where_named(ROLES, visible), **_name_values(name_or_id, visible))
    return _first_record("role", name_or_id, records)


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


_ATTRIBS = """
SELECT a.id, a.name, b.name AS barclamp, r.name AS role, a.map, a.description, a.schema, a."default", a.has_default,
       a.secret
FROM attribs a JOIN barclamps b ON b.id = a.barclamp_id LEFT JOIN roles r ON r.id = a.role_id
"""

ATTRIBS = Listing(
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
)


async def select_attribs(session: Session, where: str, **values: object) -> list[AttribRecord]:
    return await _select(session, AttribRecord, _ATTRIBS, where, values)


async def view_attrib(session: Session, name_or_id: str, visible: Visibility) -> AttribRecord:
    records = await select_attribs(session, _where_named(ATTRIBS, visible), **_name_values(name_or_id, visible))
    return _first_record("attrib", name_or_id, records)
