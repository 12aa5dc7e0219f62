"""Hooks of the provisioner's roles."""

from rackwright.domain.hooks import FollowsNodes, NodeView

SERVED = frozenset({"bootenv", "macs", "name", "available", "identity_confirmed"})
"""Fields of a node that decide what DHCP servers serve; a node whose identity is confirmed gets its own address."""


class DhcpDatabase(FollowsNodes):
    """Publishes what DHCP serves anew when nodes change."""

    role = "provisioner-dhcp-database"

    def concerns(self, node: NodeView) -> bool:
        return bool(node.changed & SERVED)
