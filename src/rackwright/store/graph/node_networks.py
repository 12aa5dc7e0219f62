"""The networks that are wanted of nodes which run already, with what is known of their machines."""

from collections.abc import Collection

from rackwright.domain.attributes import merge
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Invalid, NotFound
from rackwright.domain.installs.node_network.living import NodeNetwork, has_network_files, resolve_node_network
from rackwright.domain.installs.node_network.resolve import resolve_network
from rackwright.domain.installs.request import InstallRequest, Problem
from rackwright.domain.runs import Run
from rackwright.store.db.session import Session
from rackwright.store.graph.planned_installs import JIG_KIND, select_node_addresses, select_planned_installs
from rackwright.store.networks.network_rows import select_networks

NETWORK_JIG_KIND = "node-network"

_NODE = """
SELECT n.name, n.discovery, n.hint,
       (SELECT a.frozen FROM install_attempts a WHERE a.node_id = n.id ORDER BY a.id DESC LIMIT 1) AS frozen,
       nr.wall
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id WHERE nr.id = :id
"""

_INSTALLERS = """
SELECT o.id FROM node_roles nr
JOIN roles r ON r.id = nr.role_id JOIN jigs j ON j.name = r.jig AND j.kind = :network_kind
JOIN node_roles o ON o.node_id = nr.node_id
JOIN roles i ON i.id = o.role_id JOIN jigs k ON k.name = i.jig AND k.kind = :install_kind
WHERE nr.id = ANY (:ids) AND NOT o.id = ANY (:ids)
"""


async def read_node_network(session: Session, run: Run) -> tuple[NodeNetwork | None, tuple[Problem, ...]]:
    """Return the network that is wanted of a run's node, and why it cannot be had there."""
    row = await session.row(_NODE, id=run.node_role_id)
    if row is None:
        raise NotFound("noderole", run.node_role_id)
    networks = {record.name: record.network for record in await select_networks(session)}
    addresses = await select_node_addresses(session, [run.node_id])
    chosen = run.input.get("provisioner")
    settings: JsonObject = chosen if isinstance(chosen, dict) else {}
    facts: JsonObject = merge(row.discovery, row.hint)
    request = InstallRequest(row.name, settings, facts, networks, addresses.get(run.node_id, {}))
    was_configured = bool(row.wall) or has_network_files(row.frozen or {})
    return resolve_node_network(request, was_configured=was_configured)


async def select_network_problems(session: Session, ids: Collection[int]) -> list[tuple[str, Problem]]:
    """Return why networks of living nodes cannot be changed as proposed, each with its node.

    `ids` are the noderoles that a commit would have run. Where the node is installed as well, the install tells.
    """
    rows = await session.rows(_INSTALLERS, ids=list(ids), network_kind=NETWORK_JIG_KIND, install_kind=JIG_KIND)
    installs = await select_planned_installs(session, [row.id for row in rows])
    return [(install.node, problem) for install in installs for problem in resolve_network(install.request)[1]]


async def check_network_changes(session: Session, ids: Collection[int]) -> None:
    """Refuse networks of living nodes that cannot be had as people wrote them. What may come about by itself waits."""
    problems = [
        f"{node}: {problem}" for node, problem in await select_network_problems(session, ids) if not problem.waits
    ]
    if problems:
        more = f" ({len(problems) - 1} more: see the plan)" if len(problems) > 1 else ""
        raise Invalid(f"The network of {problems[0]}{more}")
