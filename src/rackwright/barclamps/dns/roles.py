"""Hooks of the DNS roles."""

from rackwright.domain.hooks import FollowsNodes, NodeView


class DnsDatabase(FollowsNodes):
    """Publishes the names anew when nodes change."""

    role = "dns-database"

    def concerns(self, node: NodeView) -> bool:
        return bool(node.changed & {"name", "available"}) or _has_other_address(node)


def _has_other_address(node: NodeView) -> bool:
    """Return whether the node's address changed."""
    for name, now in (("discovery", node.discovery), ("hint", node.hint)):
        before = node.before.get(name)
        if isinstance(before, dict) and "address" in before and before["address"] != now.get("address"):
            return True
    return False
