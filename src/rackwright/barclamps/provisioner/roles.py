"""Hooks of the provisioner's roles."""

from rackwright.domain.hooks import AllocationView, Effects, Enqueue, NetworkView, NodeView, RoleHooks

SERVED = frozenset({"bootenv", "macs", "name", "available"})
"""What of a node the DHCP servers serve; one that was let in gets an address of its own."""


class DhcpDatabase(RoleHooks):
    """Have what is served follow the nodes. A run publishes all of it, so one request is enough for many changes."""

    role = "provisioner-dhcp-database"

    def on_node_create(self, node: NodeView) -> Effects:
        return Enqueue()

    def on_node_update(self, node: NodeView) -> Effects:
        return Enqueue() if node.changed & SERVED else None

    def on_node_delete(self, node: NodeView) -> Effects:
        return Enqueue()

    def on_network_create(self, network: NetworkView) -> Effects:
        return Enqueue()

    def on_network_change(self, network: NetworkView) -> Effects:
        return Enqueue()

    def on_network_delete(self, network: NetworkView) -> Effects:
        return Enqueue()

    def on_allocation_create(self, allocation: AllocationView) -> Effects:
        return Enqueue()

    def on_allocation_delete(self, allocation: AllocationView) -> Effects:
        return Enqueue()
