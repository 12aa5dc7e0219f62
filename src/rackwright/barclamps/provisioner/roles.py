"""Hooks of the provisioner's roles."""

from rackwright.domain.hooks import Effects, Enqueue, NodeView, RoleHooks

SERVED = frozenset({"bootenv", "macs", "uuid", "name"})
"""What of a node the DHCP servers serve."""


class DhcpDatabase(RoleHooks):
    """Have what is served follow the nodes. A run publishes all of it, so one request is enough for many changes."""

    role = "provisioner-dhcp-database"

    def on_node_create(self, node: NodeView) -> Effects:
        return Enqueue()

    def on_node_update(self, node: NodeView) -> Effects:
        return Enqueue() if node.changed & SERVED else None

    def on_node_delete(self, node: NodeView) -> Effects:
        return Enqueue()
