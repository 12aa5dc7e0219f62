"""Computes the inputs that noderoles are handed when they run: their own layers, and what other noderoles supply.

The annealer does this for every run, so what most noderoles do not have (wanted attribs, ancestors with data, clusters)
is queried only where it can exist.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Row

from rackwright.domain.attributes import Layers, Source, StagedInput, Surroundings, stage_input
from rackwright.domain.catalogue import Flag, JsonObject, Role
from rackwright.domain.states import PROPOSED
from rackwright.store.catalogue.stored_catalogue import CatalogueOutdated, StoredCatalogue
from rackwright.store.db.session import Session

# Empty maps come as NULL: most are empty, and reading NULL is faster than reading an empty map.
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

ROLES_WITH_DATA = """
shaped AS (
    SELECT coalesce(array_agg(role_id), '{}') || CAST(:templated AS bigint[]) AS roles
    FROM deployment_roles WHERE data <> '{}' OR wall <> '{}'
)"""

# `above`: a noderole with data of its own comes earlier on the same node, and may be an ancestor.
_STAGING = f"""
WITH {ROLES_WITH_DATA}
SELECT {_LAYER_COLUMNS}, n.name AS node, nullif(n.discovery, '{{}}') AS discovery, nullif(n.hint, '{{}}') AS hint,
    n.quirks,
    EXISTS (SELECT FROM node_roles a, shaped WHERE a.node_id = nr.node_id AND a.cohort < nr.cohort
            AND (a.has_data OR a.role_id = ANY (shaped.roles))) AS above
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id
LEFT JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
WHERE nr.id = ANY (:ids)
"""

# The last column tells whether a noderole may be handed anything but its role's defaults. `shaped` are the roles that
# have data in some deployment, or a template.
CANDIDATE_COLUMNS = """
    nr.id, nr.node_id, n.name, nr.role_id, nr.cohort, nr.hash, nr.forced, nr.attempts, nr.wall <> '{}',
    nr.has_data OR n.hint <> '{}' OR n.quirks <> '{}' OR nr.role_id = ANY (shaped.roles)
        OR EXISTS (SELECT FROM node_roles a WHERE a.node_id = nr.node_id AND a.cohort < nr.cohort AND a.has_data)
        OR shaped.roles <> '{}' AND EXISTS (
            SELECT FROM node_roles a WHERE a.node_id = nr.node_id AND a.role_id = ANY (shaped.roles))
"""
"""The columns of `ClaimCandidate`, from `node_roles nr`, `nodes n` and `shaped`."""


class ClaimCandidate(NamedTuple):
    """What the claim needs to know of a noderole; a tuple, since there are very many."""

    id: int
    node_id: int
    node: str
    role_id: int
    cohort: int
    hash: bytes | None
    forced: bool
    attempts: int
    has_wall: bool
    """Its last run returned values."""
    may_have_inputs: bool
    """The noderole may be handed more than its role's defaults."""


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
    """A noderole that is about to run, with its staged inputs."""

    node_id: int
    node: str
    role: Role
    staged: StagedInput


async def stage_candidates(session: Session, candidates: Sequence[ClaimCandidate]) -> dict[int, StagedNodeRole]:
    """Return the inputs, as of now, of the candidates that were just read."""
    stored = await session.catalogue()
    staged: dict[int, StagedNodeRole] = {}
    for candidate in candidates:
        with_defaults = stage_defaults(stored, candidate)
        if with_defaults is not None:
            staged[candidate.id] = with_defaults
    other_ids = [candidate.id for candidate in candidates if candidate.id not in staged]
    return staged | await stage_noderoles(session, other_ids) if other_ids else staged


def stage_defaults(stored: StoredCatalogue, candidate: ClaimCandidate) -> StagedNodeRole | None:
    """Return the inputs of a candidate that has nothing but its role's defaults; None: it may have more."""
    name = stored.role_names.get(candidate.role_id)
    if name is None:  # imported since this catalogue was read
        return None
    role = stored.catalogue.roles[name]
    if candidate.may_have_inputs or role.wants or role.has(Flag.CLUSTER):
        return None
    bare = stored.default_inputs.get(candidate.role_id)
    if bare is None:
        bare = stage_input(stored.catalogue, role.name, Layers(template=role.template), Surroundings())
        stored.default_inputs[candidate.role_id] = bare
    return StagedNodeRole(candidate.node_id, candidate.node, role, bare)


async def stage_noderoles(session: Session, ids: Collection[int]) -> dict[int, StagedNodeRole]:
    """Return the inputs of each noderole, as of now.

    The caller does not hold the graph lock, so a noderole may be of a role that was imported after this transaction
    read the catalogue; then the catalogue is read again.
    """
    while True:
        try:
            return await _stage(session, await session.catalogue(), ids)
        except CatalogueOutdated:
            session.forget_catalogue()


async def _stage(session: Session, stored: StoredCatalogue, ids: Collection[int]) -> dict[int, StagedNodeRole]:
    rows = await session.rows(_STAGING, ids=list(ids), templated=stored.templated_role_ids)
    links = await _select_links(session, stored, rows)
    ancestors = await _select_ancestors(session, [row.id for row in rows if row.above])
    sources = await _select_sources(session, stored, links, ancestors)
    members = await _select_members(session, stored, rows)
    staged: dict[int, StagedNodeRole] = {}
    default_inputs: dict[int, StagedInput] = {}
    for row in rows:
        role = stored.catalogue.role(stored.role_name(row.role_id))
        only_defaults = not (role.wants or row.above or _has_own_inputs(row) or role.has(Flag.CLUSTER))
        if only_defaults and row.role_id in default_inputs:
            staged[row.id] = StagedNodeRole(row.node_id, row.node, role, default_inputs[row.role_id])
            continue
        surroundings = Surroundings(
            discovery=row.discovery or {},
            hint=row.hint or {},
            quirks=tuple(row.quirks),
            links=tuple((attrib, sources[parent]) for attrib, parent in links.get(row.id, ())),
            ancestors=tuple(sources[ancestor] for ancestor in ancestors.get(row.id, ())),
            members=members.get((row.deployment_id, row.role_id), ()),
        )
        inputs = stage_input(stored.catalogue, role.name, _build_layers(stored, row), surroundings)
        staged[row.id] = StagedNodeRole(row.node_id, row.node, role, inputs)
        if only_defaults:
            default_inputs[row.role_id] = inputs
    return staged


def _has_own_inputs(row: Row[Any]) -> bool:
    """Return whether the noderole or its node has inputs of its own; all others of a role have the same inputs."""
    own_layers = (row.wall, row.sysdata, row.user_data, row.deployment_wall, row.committed, row.hint)
    return bool(row.quirks) or any(layer is not None for layer in own_layers)


def _build_layers(stored: StoredCatalogue, row: Row[Any]) -> Layers:
    return Layers(
        template=stored.catalogue.role(stored.role_name(row.role_id)).template,
        deployment_wall=row.deployment_wall or {},
        committed=row.committed or {},
        wall=row.wall or {},
        sysdata=row.sysdata or {},
        user=row.user_data or {},
    )


async def _select_links(
    session: Session, stored: StoredCatalogue, rows: Sequence[Row[Any]]
) -> dict[int, list[tuple[str, int]]]:
    """Return for each noderole the attribs that it wants of a parent, each with that parent."""
    roles = {row.id: stored.catalogue.role(stored.role_name(row.role_id)) for row in rows}
    wanting_ids = [id for id, role in roles.items() if role.wants]
    if not wanting_ids:
        return {}
    link_rows = await session.rows(
        "SELECT l.child_id, a.name AS attrib, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id"
        " WHERE l.child_id = ANY (:ids) ORDER BY a.id",
        ids=wanting_ids,
    )
    links: dict[int, list[tuple[str, int]]] = {}
    for row in link_rows:
        # A link to an attrib that the role no longer wants since an import stays until the next commit.
        if row.attrib in roles[row.child_id].wants:
            links.setdefault(row.child_id, []).append((row.attrib, row.parent_id))
    return links


async def _select_ancestors(session: Session, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return for each noderole its ancestors on its own node, the lowest (cohort, id) first."""
    if not ids:
        return {}
    ancestors: dict[int, list[int]] = {}
    for row in await session.rows(_SAME_NODE_ANCESTORS, ids=list(ids)):
        ancestors.setdefault(row.taker, []).append(row.id)
    return ancestors


async def _select_sources(
    session: Session,
    stored: StoredCatalogue,
    links: dict[int, list[tuple[str, int]]],
    ancestors: dict[int, list[int]],
) -> dict[int, Source]:
    ids = {parent for noderole_links in links.values() for _, parent in noderole_links}
    ids |= {ancestor for noderole_ancestors in ancestors.values() for ancestor in noderole_ancestors}
    if not ids:
        return {}
    return {
        row.id: Source(stored.role_name(row.role_id), _build_layers(stored, row).merged())
        for row in await session.rows(_LAYERS, ids=list(ids))
    }


async def _select_members(
    session: Session, stored: StoredCatalogue, rows: Collection[Row[Any]]
) -> dict[tuple[int, int], tuple[JsonObject, ...]]:
    """Return the members of each cluster among these noderoles, by (deployment, role)."""
    clusters = {
        (row.deployment_id, row.role_id)
        for row in rows
        if stored.catalogue.role(stored.role_name(row.role_id)).has(Flag.CLUSTER)
    }
    if not clusters:
        return {}
    member_rows = await session.rows(
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
    for row in member_rows:
        key = (row.deployment_id, row.role_id)
        members[key] = (*members.get(key, ()), {"node": row.name, "address": row.address})
    return members
