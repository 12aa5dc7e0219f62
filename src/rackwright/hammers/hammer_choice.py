"""The choice of the hammer for a machine: the kind that its BMC was given, else the preferred one that reaches it."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.hammers.base import Hammer, HammerFailed, HammerNode, Probe, bmc_kind


@dataclass(frozen=True)
class HammerChoice:
    """Chooses among the hammers of a server."""

    hammers: Sequence[Hammer]

    def hammer(self, node: HammerNode) -> Hammer:
        """Return the hammer for a machine; raise HammerFailed if the server has none of its BMC's kind."""
        kind = bmc_kind(node.settings.get("bmc"))
        if kind is None:
            return self._reaching(node)[0]
        by_kind = {hammer.kind: hammer for hammer in self.hammers if hammer.bmc}
        if kind not in by_kind:
            raise HammerFailed(f"{node.name} has a BMC of kind {kind!r}; this server knows {', '.join(by_kind)}")
        return by_kind[kind]

    def probe(self, node: HammerNode) -> Probe:
        """Return the preferred hammer that can tell what a machine runs."""
        return next(hammer for hammer in self._reaching(node) if isinstance(hammer, Probe))

    def _reaching(self, node: HammerNode) -> list[Hammer]:
        """Return the hammers that can reach a machine for whose BMC no kind was chosen, the preferred first.

        SSH always is among them. A machine of a lab reports that it is one, which counts more than any preference.
        """

        def order(hammer: Hammer) -> tuple[bool, int, str]:
            return not hammer.lab_only, node.priorities.get(hammer.kind, hammer.priority), hammer.kind

        return sorted((hammer for hammer in self.hammers if hammer.reaches(node)), key=order)
