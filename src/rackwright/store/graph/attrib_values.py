"""The value that an attrib has for a node, a deployment or a noderole, and the layer that each value comes from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackwright.domain.attributes import MISSING, merge, nest_at_path, read_at_path, without_path
from rackwright.domain.catalogue import Attrib, Json, JsonObject
from rackwright.domain.errors import NotFound
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployment_roles import DeploymentRoleRecord, select_deployment_roles
from rackwright.store.graph.noderole_views import NodeRoleView, read_noderole_details
from rackwright.store.machines.nodes import NodeRecord

Layer = tuple[str, JsonObject]
"""The name of the layer as people see it, and the values that it sets."""

DEFAULT = "default"


@dataclass(frozen=True)
class AttribValue:
    attrib: Attrib
    role: str | None
    """The role that supplies the value: the attrib's owner, or a role that provides the owner. None: the node."""
    has_value: bool
    """A layer or the attrib's default sets a value."""
    value: Json
    source: str | None
    """The highest layer that sets a value; None: no layer does."""
    layers: tuple[tuple[str, Json], ...]
    """The value that each layer sets, with the layer's name; the lowest layer first."""


def resolve_value(attrib: Attrib, role: str | None, layers: Sequence[Layer]) -> AttribValue:
    """Return the value of an attrib from its layers.

    Later layers win and maps are merged. If no layer sets a value, the attrib's default counts.
    """
    merged = read_at_path(merge(*(values for _, values in layers)), attrib.map)
    layer_values = [
        (name, value) for name, values in layers if (value := read_at_path(values, attrib.map)) is not MISSING
    ]
    if attrib.has_default:
        layer_values.insert(0, (DEFAULT, attrib.default))
    if merged is MISSING:
        source = DEFAULT if attrib.has_default else None
        return AttribValue(attrib, role, attrib.has_default, attrib.default, source, tuple(layer_values))
    return AttribValue(attrib, role, True, merged, layer_values[-1][0], tuple(layer_values))


def with_value(values: JsonObject, attrib: Attrib, value: Json) -> JsonObject:
    """Return the values with `value` in the attrib's place, and nothing else there."""
    return merge(without_path(values, attrib.map), nest_at_path(attrib.map, value))


def without_value(values: JsonObject, attrib: Attrib) -> JsonObject:
    """Return the values without that of the attrib."""
    return without_path(values, attrib.map)


# --- nodes


async def read_node_attribs(session: Session, node: NodeRecord) -> list[AttribValue]:
    """Return the attribs that belong to nodes, sorted by name, with the values that this node has."""
    catalogue = (await session.catalogue()).catalogue
    layers: list[Layer] = [("discovery", node.discovery), ("hint", node.hint)]
    return [
        resolve_value(attrib, None, layers)
        for attrib in _sort_by_name(catalogue.attribs.values())
        if attrib.role is None
    ]


# --- noderoles


async def read_noderole_attribs(
    session: Session, noderole: NodeRoleView, *, committed: bool = False
) -> list[AttribValue]:
    """Return the attribs of a noderole's role with their values.

    The values are those of the open proposal, if there is one; with `committed` those that are in force.
    """
    catalogue = (await session.catalogue()).catalogue
    details = await read_noderole_details(session, noderole.id, EVERYTHING)
    layers = [
        *await _read_deployment_layers(session, noderole.deployment_id, noderole.role, committed=committed),
        ("wall", details.wall),
        ("sysdata", details.sysdata),
        ("user", noderole.committed_data if committed else noderole.user_data),
    ]
    return [
        resolve_value(attrib, noderole.role, layers) for attrib in _sort_by_name(catalogue.attribs_of(noderole.role))
    ]


async def _read_deployment_layers(session: Session, deployment_id: int, role: str, *, committed: bool) -> list[Layer]:
    records = await select_deployment_roles(
        session, "WHERE dr.deployment_id = :id AND r.name = :role", id=deployment_id, role=role
    )
    return _build_layers(records[0], committed=committed) if records else []


def _build_layers(record: DeploymentRoleRecord, *, committed: bool = False) -> list[Layer]:
    data = record.committed_data if committed else record.data
    return [("template", record.template), ("deployment wall", record.wall), ("deployment", data)]


# --- deployments


async def read_deployment_attribs(
    session: Session, deployment_id: int
) -> list[tuple[DeploymentRoleRecord, AttribValue]]:
    """Return the attribs of every role in the deployment with their values, each with its deployment-role."""
    catalogue = (await session.catalogue()).catalogue
    records = await select_deployment_roles(session, "WHERE dr.deployment_id = :id ORDER BY r.name", id=deployment_id)
    return [
        (record, resolve_value(attrib, record.role, _build_layers(record)))
        for record in records
        for attrib in _sort_by_name(catalogue.attribs_of(record.role))
    ]


def _sort_by_name(attribs: Iterable[Attrib]) -> list[Attrib]:
    return sorted(attribs, key=lambda attrib: attrib.name)


def find_attrib_value(values: Iterable[AttribValue], name: str, owner: str) -> AttribValue:
    """Return the value of the attrib of this name; `owner` names what it was looked up on, for the error."""
    for value in values:
        if value.attrib.name == name:
            return value
    raise NotFound(f"attrib of {owner}:", name)
