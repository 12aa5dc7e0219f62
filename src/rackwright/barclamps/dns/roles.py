"""Hooks of the DNS roles."""

from rackwright.domain.hooks import FollowsNodes, NodeView


class DnsDatabase(FollowsNodes):
    """Have the names follow the nodes."""

    role = "dns-database"

    def concerns(self, node: NodeView) -> bool:
        return bool(node.changed & {"name", "available"}) or _moved(node)


def _moved(node: NodeView) -> bool:
    """Whether it was found at another address."""
    for name, now in (("discovery", node.discovery), ("hint", node.hint)):
        before = node.before.get(name)
        if isinstance(before, dict) and "address" in before and before["address"] != now.get("address"):
            return True
    return False
