"""Hooks of the provisioner's roles."""

from rackwright.domain.hooks import FollowsNodes, NodeView

SERVED = frozenset({"bootenv", "macs", "name", "available", "identity_confirmed"})
"""What of a node the DHCP servers serve; one that was let in gets an address of its own."""


class DhcpDatabase(FollowsNodes):
    """Have what is served follow the nodes."""

    role = "provisioner-dhcp-database"

    def concerns(self, node: NodeView) -> bool:
        return bool(node.changed & SERVED)
