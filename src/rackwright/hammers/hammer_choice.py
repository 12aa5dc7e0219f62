"""Which hammer a machine is hit with: the kind its BMC is said to be, or else SSH."""

from collections.abc import Mapping
from dataclasses import dataclass

from rackwright.domain.catalogue import Json
from rackwright.hammers.base import Hammer, HammerFailed, HammerNode, Probe
from rackwright.hammers.simulated import KIND, SimulatedHammer


def bmc_kind(bmc: Json) -> str | None:
    kind = bmc.get("kind") if isinstance(bmc, dict) else None
    return kind if isinstance(kind, str) else None


@dataclass(frozen=True)
class Choice:
    """`by_kind` for machines that have a controller, as people say; `simulated` for those of a lab, which say it."""

    by_kind: Mapping[str, Hammer]
    without: Hammer
    look: Probe
    simulated: SimulatedHammer | None = None

    def hammer(self, node: HammerNode) -> Hammer:
        kind = bmc_kind(node.settings.get("bmc"))
        if kind is None:
            return self._simulated(node) or self.without
        if kind not in self.by_kind:
            raise HammerFailed(f"{node.name} has a BMC of kind {kind!r}; this server knows {', '.join(self.by_kind)}")
        return self.by_kind[kind]

    def probe(self, node: HammerNode) -> Probe:
        return self._simulated(node) or self.look

    def _simulated(self, node: HammerNode) -> SimulatedHammer | None:
        return self.simulated if bmc_kind(node.reported_bmc) == KIND else None
