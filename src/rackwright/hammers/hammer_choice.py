"""Which hammer a machine is hit with: that of the kind its BMC is said to be, else the preferred that reaches it."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.hammers.base import Hammer, HammerFailed, HammerNode, Probe, bmc_kind


@dataclass(frozen=True)
class Choice:
    """The choice among the hammers of a server."""

    hammers: Sequence[Hammer]

    def hammer(self, node: HammerNode) -> Hammer:
        kind = bmc_kind(node.settings.get("bmc"))
        if kind is None:
            return self._reaching(node)[0]
        by_kind = {hammer.kind: hammer for hammer in self.hammers if hammer.bmc}
        if kind not in by_kind:
            raise HammerFailed(f"{node.name} has a BMC of kind {kind!r}; this server knows {', '.join(by_kind)}")
        return by_kind[kind]

    def probe(self, node: HammerNode) -> Probe:
        return next(hammer for hammer in self._reaching(node) if isinstance(hammer, Probe))

    def _reaching(self, node: HammerNode) -> list[Hammer]:
        """Those that can reach a machine of whose BMC no kind is said, the preferred first. SSH always is among them.

        A machine of a lab says itself that it is one, which counts more than any preference.
        """

        def order(hammer: Hammer) -> tuple[bool, int, str]:
            return not hammer.lab_only, node.priorities.get(hammer.kind, hammer.priority), hammer.kind

        return sorted((hammer for hammer in self.hammers if hammer.reaches(node)), key=order)
