"""Hooks of the DNS roles."""

from rackwright.domain.hooks import AllocationView, Effects, Enqueue, NetworkView, NodeView, RoleHooks


class DnsDatabase(RoleHooks):
    """Have the names follow the nodes. A run looks at all of them, so one request is enough for many changes."""

    role = "dns-database"

    def on_node_create(self, node: NodeView) -> Effects:
        return Enqueue()

    def on_node_update(self, node: NodeView) -> Effects:
        return Enqueue() if node.changed & {"name", "available"} or _moved(node) else None

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


def _moved(node: NodeView) -> bool:
    """Whether it was found at another address."""
    for name, now in (("discovery", node.discovery), ("hint", node.hint)):
        before = node.before.get(name)
        if isinstance(before, dict) and before.get("address") != now.get("address"):
            return True
    return False
