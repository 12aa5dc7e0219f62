"""The operating system installs that a proposal would begin, with what is wanted and known of each machine.

A few queries read all of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_interface
from typing import Any

from sqlalchemy import Row

from rackwright.domain.attributes import merge
from rackwright.domain.catalogue import Catalogue, Json, JsonObject
from rackwright.domain.installs.planned_installs import PlannedInstall
from rackwright.domain.installs.request import InstallRequest, Interface
from rackwright.domain.machines.power import has_bmc_login
from rackwright.domain.networks.networks import Category, Network
from rackwright.store.db.session import Session
from rackwright.store.networks.network_rows import select_networks

JIG_KIND = "os-install"
"""The kind of jig whose roles install an operating system."""
SIMULATED = "simulated"
"""The kind of BMC that machines of a lab report; no other report is used for anything."""

_QUERY = """
SELECT nr.id AS node_role_id, n.id AS node_id, n.name AS node, n.identity_confirmed, n.discovery, n.hint,
       r.template, dr.wall AS role_wall, coalesce(sr.data, dr.data) AS role_data, nr.wall, nr.sysdata,
       coalesce(b.data, nr.user_data) AS user_data,
       (SELECT host(a.address) FROM allocations a JOIN networks w ON w.id = a.network_id
        WHERE a.node_id = n.id AND w.category = :admin ORDER BY a.address LIMIT 1) AS allocated
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id
JOIN roles r ON r.id = nr.role_id JOIN jigs j ON j.name = r.jig AND j.kind = :kind
JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
LEFT JOIN snapshots s ON s.deployment_id = nr.deployment_id AND s.state = 'proposed' AND :proposed
LEFT JOIN snapshot_roles sr ON sr.snapshot_id = s.id AND sr.role_id = nr.role_id
LEFT JOIN snapshot_bindings b ON b.snapshot_id = s.id AND b.node_id = nr.node_id AND b.role_id = nr.role_id
WHERE nr.id = ANY (:ids) ORDER BY n.name, nr.id
"""


_ADDRESSES = """
SELECT a.node_id, w.name AS network,
       host(a.address) || '/' || masklen(CASE a.family WHEN 4 THEN w.v4_subnet ELSE w.v6_subnet END) AS address
FROM allocations a JOIN networks w ON w.id = a.network_id WHERE a.node_id = ANY (:ids) ORDER BY w.name, a.family
"""


async def select_planned_installs(
    session: Session, ids: Collection[int], *, proposed: bool = True
) -> list[PlannedInstall]:
    """Return the installs among these noderoles: those whose role installs an operating system.

    `proposed`: with the data of the open proposal; else with what is in force.
    """
    if not ids:
        return []
    rows = await session.rows(_QUERY, ids=list(ids), kind=JIG_KIND, admin=Category.ADMIN.value, proposed=proposed)
    if not rows:
        return []
    catalogue = (await session.catalogue()).catalogue
    attribs = catalogue.attribs
    default = attribs["provisioner-target-os"].default if "provisioner-target-os" in attribs else None
    networks = {record.name: record.network for record in await select_networks(session)}
    addresses = await select_node_addresses(session, [row.node_id for row in rows])
    installs = [
        _build_planned_install(row, _read_settings(session, catalogue, row), default, networks, addresses[row.node_id])
        for row in rows
    ]
    systems = {install.os for install in installs if install.os}
    schemas = {system: session.store.read_cloud_init(system) for system in systems}
    images = {system: session.store.read_image(system) for system in systems}
    return [
        replace(install, request=replace(install.request, cloud_init=schemas.get(os), image=images.get(os)))
        for install, os in ((install, install.os or "") for install in installs)
    ]


async def select_resolved_installs(
    session: Session, ids: Collection[int], *, proposed: bool = True
) -> list[PlannedInstall]:
    """Return the installs among these noderoles, each with what it comes to.

    That is worked out in a thread: what people wrote may take long to judge, and others are served meanwhile.
    """
    installs = await select_planned_installs(session, ids, proposed=proposed)
    await asyncio.to_thread(_resolve_all, installs)
    return installs


def _resolve_all(installs: Iterable[PlannedInstall]) -> None:
    for install in installs:
        _ = install.resolved


def _read_settings(session: Session, catalogue: Catalogue, row: Row[Any]) -> JsonObject:
    """Return the settings of an install; of secrets that people named, only the names and the lengths."""
    merged = merge(row.template, row.role_wall, row.role_data, row.wall, row.sysdata, row.user_data)
    opened = session.store.vault.open_secrets(catalogue.secret_attribs, merged)
    provisioner = opened.get("provisioner")
    settings: JsonObject = provisioner if isinstance(provisioner, dict) else {}
    secrets = settings.get("secrets")
    if not isinstance(secrets, dict):
        return settings
    lengths: JsonObject = {name: len(secret) if isinstance(secret, str) else 0 for name, secret in secrets.items()}
    return {**settings, "secrets": lengths}


async def select_node_addresses(
    session: Session, node_ids: list[int]
) -> Mapping[int, Mapping[str, tuple[Interface, ...]]]:
    """Return the addresses of nodes, by node and by the name of their network."""
    addresses: dict[int, dict[str, tuple[Interface, ...]]] = defaultdict(dict)
    for row in await session.rows(_ADDRESSES, ids=node_ids):
        of_node = addresses[row.node_id]
        of_node[row.network] = (*of_node.get(row.network, ()), ip_interface(row.address))
    return addresses


def _build_planned_install(
    row: Row[Any],
    settings: JsonObject,
    default_os: Json,
    networks: Mapping[str, Network],
    addresses: Mapping[str, tuple[Interface, ...]],
) -> PlannedInstall:
    facts: JsonObject = merge(row.discovery, row.hint)
    return PlannedInstall(
        node=row.node,
        os=_read_text(settings, "target_os") or (default_os if isinstance(default_os, str) else None),
        chosen_disk=_read_text(settings, "disk"),
        address=next((str(address) for address in (facts.get("address"), row.allocated) if address), None),
        has_controller=_has_controller(row),
        accepted=row.identity_confirmed,
        request=InstallRequest(row.node, settings, facts, networks, addresses),
        node_role_id=row.node_role_id,
    )


def _has_controller(row: Row[Any]) -> bool:
    """Return whether people said how the BMC is reached, or the machine is simulated: its own word is a proposal."""
    chosen, reported = row.hint.get("bmc"), row.discovery.get("bmc")
    is_simulated = isinstance(reported, dict) and reported.get("kind") == SIMULATED
    return is_simulated or (isinstance(chosen, dict) and bool(chosen.get("kind"))) or has_bmc_login(chosen)


def _read_text(settings: JsonObject, name: str) -> str | None:
    value = settings.get(name)
    return value if isinstance(value, str) and value else None
