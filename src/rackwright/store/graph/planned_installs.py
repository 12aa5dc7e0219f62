"""The operating system installs that a proposal would begin, with what is wanted and known of each machine.

One query reads all of them.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row

from rackwright.domain.attributes import MISSING, merge, read_at_path
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.machines.planned_installs import PlannedInstall, disk_names
from rackwright.domain.machines.power import has_bmc_login
from rackwright.domain.networks.networks import Category
from rackwright.store.db.session import Session

JIG_KIND = "os-install"
"""The kind of jig whose roles install an operating system."""

_QUERY = """
SELECT n.name AS node, n.identity_confirmed, n.discovery, n.hint, r.template, dr.wall AS role_wall,
       coalesce(sr.data, dr.data) AS role_data, nr.wall, nr.sysdata, coalesce(b.data, nr.user_data) AS user_data,
       (SELECT host(a.address) FROM allocations a JOIN networks w ON w.id = a.network_id
        WHERE a.node_id = n.id AND w.category = :admin ORDER BY a.address LIMIT 1) AS allocated
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id
JOIN roles r ON r.id = nr.role_id JOIN jigs j ON j.name = r.jig AND j.kind = :kind
JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
LEFT JOIN snapshots s ON s.deployment_id = nr.deployment_id AND s.state = 'proposed'
LEFT JOIN snapshot_roles sr ON sr.snapshot_id = s.id AND sr.role_id = nr.role_id
LEFT JOIN snapshot_bindings b ON b.snapshot_id = s.id AND b.node_id = nr.node_id AND b.role_id = nr.role_id
WHERE nr.id = ANY (:ids) ORDER BY n.name
"""


async def select_planned_installs(session: Session, ids: Collection[int]) -> list[PlannedInstall]:
    """Return the installs among these noderoles: those whose role installs an operating system."""
    rows = await session.rows(_QUERY, ids=list(ids), kind=JIG_KIND, admin=Category.ADMIN.value) if ids else []
    attribs = (await session.catalogue()).catalogue.attribs
    default = attribs["provisioner-target-os"].default if "provisioner-target-os" in attribs else None
    return [_build_planned_install(row, default) for row in rows]


def _build_planned_install(row: Row[Any], default_os: Json) -> PlannedInstall:
    settings = merge(row.template, row.role_wall, row.role_data, row.wall, row.sysdata, row.user_data)
    facts: JsonObject = merge(row.discovery, row.hint)
    bmc = facts.get("bmc")
    return PlannedInstall(
        node=row.node,
        os=_read_text(settings, "target_os") or (default_os if isinstance(default_os, str) else None),
        chosen_disk=_read_text(settings, "disk"),
        disks=disk_names(facts.get("disks")),
        address=next((str(address) for address in (facts.get("address"), row.allocated) if address), None),
        has_controller=(isinstance(bmc, dict) and bool(bmc.get("kind"))) or has_bmc_login(row.hint.get("bmc")),
        accepted=row.identity_confirmed,
    )


def _read_text(settings: JsonObject, name: str) -> str | None:
    value = read_at_path(settings, ("provisioner", name))
    return value if value is not MISSING and isinstance(value, str) and value else None
