"""The Ansible inventory of all machines: hosts with their variables, in groups by deployment, role and group."""

import re

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.machines.ssh_login import PORT, ROOT, Login, login_of
from rackwright.domain.states import PROPOSED, NodeRoleState, worst_state
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.noderole_views import NODE_ROLES
from rackwright.store.machines.nodes import NODES

# The roles of a node leave out those in deployments that may not be seen.
_HOSTS = """
SELECT n.id, n.name, n.alive, n.available, n.bootenv, d.name AS deployment,
       coalesce(n.hint ->> 'address', n.discovery ->> 'address') AS address, n.hint,
       ARRAY(SELECT r.name FROM node_roles nr JOIN roles r ON r.id = nr.role_id
             WHERE nr.node_id = n.id AND nr.state <> :proposed AND {seen_role} ORDER BY 1) AS roles,
       ARRAY(SELECT DISTINCT state FROM node_roles nr WHERE nr.node_id = n.id) AS states,
       ARRAY(SELECT g.category || '_' || g.name FROM node_groups ng JOIN groups g ON g.id = ng.group_id
             WHERE ng.node_id = n.id ORDER BY 1) AS groups
FROM nodes n JOIN deployments d ON d.id = n.deployment_id WHERE NOT n.system AND {seen_node} ORDER BY n.name
"""


async def read_ansible_inventory(session: Session, visible: Visibility) -> JsonObject:
    """Return the inventory in Ansible's own shape: a map of groups, and all variables of hosts under `_meta`."""
    hostvars: JsonObject = {}
    members: dict[str, list[str]] = {}
    query = _HOSTS.format(seen_role=visible.condition(NODE_ROLES.seen), seen_node=visible.condition(NODES.seen))
    for row in await session.rows(query, proposed=int(PROPOSED), **visible.values):
        state = worst_state(NodeRoleState(state) for state in row.states).label
        hostvars[row.name] = {
            **({"ansible_host": row.address} if row.address else {}),
            **_login_variables(login_of(row.hint)),
            "rackwright_id": row.id,
            "rackwright_deployment": row.deployment,
            "rackwright_alive": row.alive,
            "rackwright_available": row.available,
            "rackwright_bootenv": row.bootenv,
            "rackwright_state": state,
            "rackwright_roles": row.roles,
            "rackwright_groups": row.groups,
        }
        groups = [_group_name("deployment", row.deployment), *(_group_name("role", role) for role in row.roles)]
        for group in (*groups, *(_group_name("group", group) for group in row.groups)):
            members.setdefault(group, []).append(row.name)
    children = await _select_child_groups(session, visible)
    child_names = {child for names in children.values() for child in names}
    group_names = sorted(members.keys() | children.keys() | child_names)
    inventory: JsonObject = {"_meta": {"hostvars": hostvars}, "all": {"children": [*group_names]}}
    for group in group_names:
        hosts: list[Json] = [*members.get(group, ())]
        child_groups: list[Json] = [*children.get(group, ())]
        inventory[group] = {"hosts": hosts, **({"children": child_groups} if child_groups else {})}
    return inventory


def _login_variables(login: Login) -> JsonObject:
    """Return how Ansible logs in, where that is not its default."""
    port: JsonObject = {} if login.port == PORT else {"ansible_port": login.port}
    return port if login.user == ROOT else {**port, "ansible_user": login.user}


async def _select_child_groups(session: Session, visible: Visibility) -> dict[str, list[str]]:
    """Return for each deployment's group the groups of the deployments directly below it."""
    rows = await session.rows(
        "SELECT p.name AS parent, d.name FROM deployments d JOIN deployments p ON p.id = d.parent_id"
        f" WHERE {visible.condition('d.id = ANY (:sees) AND p.id = ANY (:sees)')} ORDER BY 2",
        **visible.values,
    )
    children: dict[str, list[str]] = {}
    for row in rows:
        children.setdefault(_group_name("deployment", row.parent), []).append(_group_name("deployment", row.name))
    return children


def _group_name(kind: str, name: str) -> str:
    """Return a name of a group that Ansible takes without a warning."""
    return f"{kind}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
