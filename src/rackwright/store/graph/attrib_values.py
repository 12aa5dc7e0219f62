"""The value an attrib has for a node, a deployment or a noderole, and which layer it comes from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackwright.domain.attributes import MISSING, merge, nest_at_path, read_at_path, without_path
from rackwright.domain.catalogue import Attrib, Json, JsonObject
from rackwright.domain.errors import NotFound
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployment_roles import DeploymentRoleRecord, select_deployment_roles
from rackwright.store.graph.noderole_views import NodeRoleView, around
from rackwright.store.machines.nodes import NodeRecord

Layer = tuple[str, JsonObject]
"""Its name for people, and what it says."""

DEFAULT = "default"


@dataclass(frozen=True)
class AttribValue:
    attrib: Attrib
    role: str | None
    """The role that answers for it: its owner, or a role that provides that. None: the node."""
    found: bool
    value: Json
    source: str | None
    """The highest layer that says something; None: nothing does."""
    layers: tuple[tuple[str, Json], ...]
    """What each layer says, the lowest first."""


def value_of(attrib: Attrib, role: str | None, layers: Sequence[Layer]) -> AttribValue:
    """Later layers win, maps merge; nothing found: the default."""
    merged = read_at_path(merge(*(values for _, values in layers)), attrib.map)
    shown = [(name, found) for name, values in layers if (found := read_at_path(values, attrib.map)) is not MISSING]
    if attrib.has_default:
        shown.insert(0, (DEFAULT, attrib.default))
    if merged is MISSING:
        source = DEFAULT if attrib.has_default else None
        return AttribValue(attrib, role, attrib.has_default, attrib.default, source, tuple(shown))
    return AttribValue(attrib, role, True, merged, shown[-1][0], tuple(shown))


def with_value(values: JsonObject, attrib: Attrib, value: Json) -> JsonObject:
    """The values with just this in the attrib's place."""
    return merge(without_path(values, attrib.map), nest_at_path(attrib.map, value))


def without_value(values: JsonObject, attrib: Attrib) -> JsonObject:
    return without_path(values, attrib.map)


# --- nodes


async def node_attribs(session: Session, node: NodeRecord) -> list[AttribValue]:
    catalogue = (await session.catalogue()).catalogue
    layers: list[Layer] = [("discovery", node.discovery), ("hint", node.hint)]
    return [value_of(one, None, layers) for one in _sorted(catalogue.attribs.values()) if one.role is None]


# --- noderoles


async def noderole_attribs(session: Session, noderole: NodeRoleView, *, committed: bool = False) -> list[AttribValue]:
    """As the open proposal has them, if there is one; `committed`: as they are in force."""
    catalogue = (await session.catalogue()).catalogue
    near = await around(session, noderole.id, EVERYTHING)
    layers = [
        *await _of_deployment(session, noderole.deployment_id, noderole.role, committed=committed),
        ("wall", near.wall),
        ("sysdata", near.sysdata),
        ("user", noderole.committed_data if committed else noderole.user_data),
    ]
    return [value_of(one, noderole.role, layers) for one in _sorted(catalogue.attribs_of(noderole.role))]


async def _of_deployment(session: Session, deployment_id: int, role: str, *, committed: bool) -> list[Layer]:
    found = await select_deployment_roles(
        session, "WHERE dr.deployment_id = :id AND r.name = :role", id=deployment_id, role=role
    )
    return _layers(found[0], committed=committed) if found else []


def _layers(record: DeploymentRoleRecord, *, committed: bool = False) -> list[Layer]:
    said = record.committed_data if committed else record.data
    return [("template", record.template), ("deployment wall", record.wall), ("deployment", said)]


# --- deployments


async def deployment_attribs(session: Session, deployment_id: int) -> list[tuple[DeploymentRoleRecord, AttribValue]]:
    """Of every role in the deployment, with the deployment-role that has it."""
    catalogue = (await session.catalogue()).catalogue
    records = await select_deployment_roles(session, "WHERE dr.deployment_id = :id ORDER BY r.name", id=deployment_id)
    return [
        (record, value_of(one, record.role, _layers(record)))
        for record in records
        for one in _sorted(catalogue.attribs_of(record.role))
    ]


def _sorted(attribs: Iterable[Attrib]) -> list[Attrib]:
    return sorted(attribs, key=lambda attrib: attrib.name)


def pick(values: Iterable[AttribValue], name: str, where: str) -> AttribValue:
    """The one of this name."""
    for one in values:
        if one.attrib.name == name:
            return one
    raise NotFound(f"attrib of {where}:", name)
