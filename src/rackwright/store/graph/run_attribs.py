"""Gathering what noderoles are handed when they run: their own layers, and what they take from around them.

This is on the annealer's path for every run, so what most noderoles do not have (wanted attribs, ancestors with data,
clusters) is asked for only where it can be there.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Row

from rackwright.domain.attributes import Layers, Source, Staged, Surroundings, stage
from rackwright.domain.catalogue import Flag, JsonObject, Role
from rackwright.domain.states import PROPOSED
from rackwright.store.catalogue.stored_catalogue import CatalogueOutdated, StoredCatalogue
from rackwright.store.db.session import Session

# Empty maps come as NULL: most are, and reading none is faster than reading an empty one.
_LAYER_COLUMNS = """
    nr.id, nr.node_id, nr.role_id, nr.deployment_id, nullif(nr.wall, '{}') AS wall,
    nullif(nr.sysdata, '{}') AS sysdata, nullif(nr.user_data, '{}') AS user_data,
    nullif(dr.wall, '{}') AS deployment_wall, nullif(dr.data, '{}') AS committed
"""

_LAYERS = f"""
SELECT {_LAYER_COLUMNS} FROM node_roles nr
LEFT JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
WHERE nr.id = ANY (:ids)
"""

SHAPED = """
shaped AS (
    SELECT coalesce(array_agg(role_id), '{}') || CAST(:templated AS bigint[]) AS roles
    FROM deployment_roles WHERE data <> '{}' OR wall <> '{}'
)"""

# `above`: something with data of its own comes before it on its node, and may be an ancestor.
_STAGING = f"""
WITH {SHAPED}
SELECT {_LAYER_COLUMNS}, n.name AS node, nullif(n.discovery, '{{}}') AS discovery, nullif(n.hint, '{{}}') AS hint,
    n.quirks,
    EXISTS (SELECT FROM node_roles a, shaped WHERE a.node_id = nr.node_id AND a.cohort < nr.cohort
            AND (a.has_data OR a.role_id = ANY (shaped.roles))) AS above
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id
LEFT JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
WHERE nr.id = ANY (:ids)
"""

# What tells whether a noderole is handed anything but its role's defaults. `shaped` are roles with data in some
# deployment, or by themselves.
GLANCE = """
    nr.id, nr.node_id, n.name, nr.role_id, nr.cohort, nr.hash, nr.forced, nr.attempts, nr.wall <> '{}',
    nr.has_data OR n.hint <> '{}' OR n.quirks <> '{}' OR nr.role_id = ANY (shaped.roles)
        OR EXISTS (SELECT FROM node_roles a WHERE a.node_id = nr.node_id AND a.cohort < nr.cohort AND a.has_data)
        OR shaped.roles <> '{}' AND EXISTS (
            SELECT FROM node_roles a WHERE a.node_id = nr.node_id AND a.role_id = ANY (shaped.roles))
"""
"""The columns of `Glance`, of `node_roles nr`, `nodes n` and `shaped`."""


class Glance(NamedTuple):
    """What the claim needs to know of a noderole; a tuple, since there are very many."""

    id: int
    node_id: int
    node: str
    role_id: int
    cohort: int
    hash: bytes | None
    forced: bool
    attempts: int
    walled: bool
    """Its last run found something out."""
    rich: bool
    """It may be handed more than its role's defaults."""


_SAME_NODE_ANCESTORS = """
WITH RECURSIVE above (taker, node_id, id) AS (
    SELECT nr.id, nr.node_id, e.parent_id
    FROM node_roles nr JOIN node_role_edges e ON e.child_id = nr.id WHERE nr.id = ANY (:ids)
    UNION
    SELECT above.taker, above.node_id, e.parent_id
    FROM above JOIN node_role_edges e ON e.child_id = above.id
)
SELECT above.taker, above.id FROM above JOIN node_roles p ON p.id = above.id AND p.node_id = above.node_id
ORDER BY p.cohort, p.id
"""


@dataclass(frozen=True)
class StagedNodeRole:
    """A noderole that is about to run."""

    node_id: int
    node: str
    role: Role
    staged: Staged


async def stage_glanced(session: Session, rows: Sequence[Glance]) -> dict[int, StagedNodeRole]:
    """What each noderole is handed, as of now, of those that were just looked at."""
    stored = await session.catalogue()
    staged: dict[int, StagedNodeRole] = {}
    for row in rows:
        plain = stage_plain(stored, row)
        if plain is not None:
            staged[row.id] = plain
    rich = [row.id for row in rows if row.id not in staged]
    return staged | await stage_noderoles(session, rich) if rich else staged


def stage_plain(stored: StoredCatalogue, row: Glance) -> StagedNodeRole | None:
    """What a noderole is handed that has nothing but its role's defaults; None: it may have more."""
    name = stored.role_names.get(row.role_id)
    if name is None:  # imported since this catalogue was read
        return None
    role = stored.catalogue.roles[name]
    if row.rich or role.wants or role.has(Flag.CLUSTER):
        return None
    bare = stored.default_inputs.get(row.role_id)
    if bare is None:
        bare = stage(stored.catalogue, role.name, Layers(template=role.template), Surroundings())
        stored.default_inputs[row.role_id] = bare
    return StagedNodeRole(row.node_id, row.node, role, bare)


async def stage_noderoles(session: Session, ids: Collection[int]) -> dict[int, StagedNodeRole]:
    """What each noderole is handed, as of now.

    Nobody holds the graph lock here, so the noderoles may be of a role that was imported since this transaction looked.
    """
    while True:
        try:
            return await _stage(session, await session.catalogue(), ids)
        except CatalogueOutdated:
            session.forget_catalogue()


async def _stage(session: Session, stored: StoredCatalogue, ids: Collection[int]) -> dict[int, StagedNodeRole]:
    rows = await session.rows(_STAGING, ids=list(ids), templated=stored.templated_role_ids)
    links = await _links(session, stored, rows)
    ancestors = await _ancestors(session, [row.id for row in rows if row.above])
    sources = await _sources(session, stored, links, ancestors)
    members = await _members(session, stored, rows)
    staged: dict[int, StagedNodeRole] = {}
    bare: dict[int, Staged] = {}
    for row in rows:
        role = stored.catalogue.role(stored.role_name(row.role_id))
        plain = not (role.wants or row.above or _has_own(row) or role.has(Flag.CLUSTER))
        if plain and row.role_id in bare:
            staged[row.id] = StagedNodeRole(row.node_id, row.node, role, bare[row.role_id])
            continue
        around = Surroundings(
            discovery=row.discovery or {},
            hint=row.hint or {},
            quirks=tuple(row.quirks),
            links=tuple((attrib, sources[parent]) for attrib, parent in links.get(row.id, ())),
            ancestors=tuple(sources[ancestor] for ancestor in ancestors.get(row.id, ())),
            members=members.get((row.deployment_id, row.role_id), ()),
        )
        found = stage(stored.catalogue, role.name, _layers(stored, row), around)
        staged[row.id] = StagedNodeRole(row.node_id, row.node, role, found)
        if plain:
            bare[row.role_id] = found
    return staged


def _has_own(row: Row[Any]) -> bool:
    """Whether anything of this noderole's or its node's own goes into its input; else all of its role are alike."""
    own = (row.wall, row.sysdata, row.user_data, row.deployment_wall, row.committed, row.hint)
    return bool(row.quirks) or any(layer is not None for layer in own)


def _layers(stored: StoredCatalogue, row: Row[Any]) -> Layers:
    return Layers(
        template=stored.catalogue.role(stored.role_name(row.role_id)).template,
        deployment_wall=row.deployment_wall or {},
        committed=row.committed or {},
        wall=row.wall or {},
        sysdata=row.sysdata or {},
        user=row.user_data or {},
    )


async def _links(
    session: Session, stored: StoredCatalogue, rows: Sequence[Row[Any]]
) -> dict[int, list[tuple[str, int]]]:
    """For each noderole the attribs it wants of a parent, and that parent."""
    roles = {row.id: stored.catalogue.role(stored.role_name(row.role_id)) for row in rows}
    wanting = [id for id, role in roles.items() if role.wants]
    if not wanting:
        return {}
    found = await session.rows(
        "SELECT l.child_id, a.name AS attrib, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id"
        " WHERE l.child_id = ANY (:ids) ORDER BY a.id",
        ids=wanting,
    )
    links: dict[int, list[tuple[str, int]]] = {}
    for row in found:
        # One that an import has it no longer want stays until the next commit.
        if row.attrib in roles[row.child_id].wants:
            links.setdefault(row.child_id, []).append((row.attrib, row.parent_id))
    return links


async def _ancestors(session: Session, ids: Sequence[int]) -> dict[int, list[int]]:
    """For each noderole its ancestors on its own node, the lowest (cohort, id) first."""
    if not ids:
        return {}
    ancestors: dict[int, list[int]] = {}
    for row in await session.rows(_SAME_NODE_ANCESTORS, ids=list(ids)):
        ancestors.setdefault(row.taker, []).append(row.id)
    return ancestors


async def _sources(
    session: Session,
    stored: StoredCatalogue,
    links: dict[int, list[tuple[str, int]]],
    ancestors: dict[int, list[int]],
) -> dict[int, Source]:
    ids = {parent for linked in links.values() for _, parent in linked}
    ids |= {ancestor for above in ancestors.values() for ancestor in above}
    if not ids:
        return {}
    return {
        row.id: Source(stored.role_name(row.role_id), _layers(stored, row).merged())
        for row in await session.rows(_LAYERS, ids=list(ids))
    }


async def _members(
    session: Session, stored: StoredCatalogue, rows: Collection[Row[Any]]
) -> dict[tuple[int, int], tuple[JsonObject, ...]]:
    """The members of each cluster among these, as (deployment, role)."""
    clusters = {
        (row.deployment_id, row.role_id)
        for row in rows
        if stored.catalogue.role(stored.role_name(row.role_id)).has(Flag.CLUSTER)
    }
    if not clusters:
        return {}
    found = await session.rows(
        """
        SELECT nr.deployment_id, nr.role_id, n.name, coalesce(n.hint -> 'address', n.discovery -> 'address') AS address
        FROM unnest(CAST(:deployments AS bigint[]), CAST(:roles AS bigint[])) AS c (deployment_id, role_id)
        JOIN node_roles nr ON nr.deployment_id = c.deployment_id AND nr.role_id = c.role_id
        JOIN nodes n ON n.id = nr.node_id
        WHERE nr.state <> :proposed AND NOT nr.doomed ORDER BY n.name
        """,
        deployments=[deployment for deployment, _ in clusters],
        roles=[role for _, role in clusters],
        proposed=int(PROPOSED),
    )
    members: dict[tuple[int, int], tuple[JsonObject, ...]] = {}
    for row in found:
        key = (row.deployment_id, row.role_id)
        members[key] = (*members.get(key, ()), {"node": row.name, "address": row.address})
    return members
