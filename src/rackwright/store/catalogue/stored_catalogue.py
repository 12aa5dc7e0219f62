"""`StoredCatalogue`, one version of the catalogue with the ids of its rows, and how it is read from the database."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Row

from rackwright.domain.attributes import StagedInput
from rackwright.domain.catalogue import Attrib, Catalogue, Flag, Jig, Role
from rackwright.store.db.session import Session


class CatalogueOutdated(Exception):
    """A noderole has a role that was imported after this catalogue was read."""


@dataclass(frozen=True)
class StoredCatalogue:
    """One version of the catalogue, with the ids of roles and attribs."""

    version: int
    catalogue: Catalogue
    role_ids: Mapping[str, int]
    role_names: Mapping[int, str]
    attrib_ids: Mapping[str, int]
    digests: Mapping[str, str]
    """By role: the digest of its barclamp's files; empty: the database has none of them."""
    hammer_priorities: Mapping[str, int]
    """By kind: the lowest priority that a barclamp gives a hammer of it."""

    default_inputs: dict[int, StagedInput] = field(default_factory=dict, compare=False, repr=False)
    """By role id: the inputs of a noderole that has nothing but its role's defaults; filled when first needed."""

    def role_name(self, role_id: int) -> str:
        name = self.role_names.get(role_id)
        if name is None:
            raise CatalogueOutdated(role_id)
        return name

    def content_digest(self, role: Role, file_kinds: Collection[str]) -> str:
        """Return the digest of the files that a run of the role uses; empty if its jig is of a kind that uses none."""
        jig = self.catalogue.jigs.get(role.jig)
        return self.digests.get(role.name, "") if jig and jig.kind in file_kinds else ""

    @cached_property
    def templated_role_ids(self) -> list[int]:
        """The ids of the roles that have a template, and so data by themselves."""
        return [self.role_ids[name] for name, role in self.catalogue.roles.items() if role.template]


async def load_catalogue(session: Session, version: int) -> StoredCatalogue:
    jigs = await session.rows(
        "SELECT j.name, b.name AS barclamp, j.kind, j.description, j.active, j.client_role"
        " FROM jigs j JOIN barclamps b ON b.id = j.barclamp_id"
    )
    roles = await session.rows(
        "SELECT r.id, r.name, b.name AS barclamp, r.jig, r.description, r.requires, r.attaches, r.wants, r.provides,"
        " r.conflicts, r.flags, r.template, r.deadline, r.hooks, b.digest"
        " FROM roles r JOIN barclamps b ON b.id = r.barclamp_id"
    )
    attribs = await session.rows(
        'SELECT a.id, a.name, b.name AS barclamp, a.map, r.name AS role, a.description, a.schema, a."default",'
        " a.has_default, a.secret FROM attribs a JOIN barclamps b ON b.id = a.barclamp_id"
        " LEFT JOIN roles r ON r.id = a.role_id ORDER BY a.id"
    )
    hammers = await session.rows("SELECT kind, min(priority) AS priority FROM hammers GROUP BY kind")
    return StoredCatalogue(
        version=version,
        catalogue=Catalogue(
            roles={row.name: _role(row) for row in roles},
            jigs={row.name: Jig(**row._mapping) for row in jigs},
            attribs={row.name: _attrib(row) for row in attribs},
        ),
        role_ids={row.name: row.id for row in roles},
        role_names={row.id: row.name for row in roles},
        attrib_ids={row.name: row.id for row in attribs},
        digests={row.name: row.digest for row in roles},
        hammer_priorities={row.kind: row.priority for row in hammers},
    )


def _role(row: Row[Any]) -> Role:
    return Role(
        name=row.name,
        barclamp=row.barclamp,
        jig=row.jig,
        description=row.description,
        requires=tuple(row.requires),
        attaches=tuple(row.attaches),
        wants=tuple(row.wants),
        provides=tuple(row.provides),
        conflicts=tuple(row.conflicts),
        flags=frozenset(Flag(flag) for flag in row.flags),
        template=row.template,
        deadline=row.deadline,
        hooks=frozenset(row.hooks),
    )


def _attrib(row: Row[Any]) -> Attrib:
    return Attrib(
        name=row.name,
        barclamp=row.barclamp,
        map=tuple(row.map),
        role=row.role,
        description=row.description,
        schema=row.schema,
        default=row.default,
        has_default=row.has_default,
        secret=row.secret,
    )
