"""Which hammer a machine is hit with: the kind its BMC is said to be, or else SSH."""

from collections.abc import Mapping
from dataclasses import dataclass

from rackwright.hammers.base import Hammer, HammerFailed, HammerNode, Probe


def bmc_kind(node: HammerNode) -> str | None:
    bmc = node.settings.get("bmc")
    kind = bmc.get("kind") if isinstance(bmc, dict) else None
    return kind if isinstance(kind, str) else None


@dataclass(frozen=True)
class Choice:
    """`by_kind` for machines that have a controller; `probes` for those that cannot be looked at over SSH."""

    by_kind: Mapping[str, Hammer]
    without: Hammer
    look: Probe
    probes: Mapping[str, Probe]

    def hammer(self, node: HammerNode) -> Hammer:
        kind = bmc_kind(node)
        if kind is None:
            return self.without
        if kind not in self.by_kind:
            raise HammerFailed(f"{node.name} has a BMC of kind {kind!r}; this server knows {', '.join(self.by_kind)}")
        return self.by_kind[kind]

    def probe(self, node: HammerNode) -> Probe:
        return self.probes.get(bmc_kind(node) or "", self.look)
