"""Which nodes go together as one unit, and which unit waits for which.

In `justdoit` every node is a unit of its own; `genius` joins some. The units are checked to be free of cycles.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Set

from ..plan import Plan


class Schedule:
    """The units of a run."""

    def __init__(self, plan: Plan, mode: str) -> None:
        self._graph = plan.graph
        self.units: List[List[int]] = []
        self.explanation: List[str] = []
        self.batched: FrozenSet[int] = frozenset()
        """States that are brought about as a batch also where they are alone in it"""
        self._after: List[List[int]] = []
        if mode == "justdoit":
            self.units = [[node] for node in range(len(plan.graph))]
        elif mode == "genius":
            from ..genius import build_units, find_batched_sources

            self.units, self.explanation = build_units(plan)
            self.batched = find_batched_sources(plan)
        self._link()

    def _link(self) -> None:
        unit_of: Dict[int, int] = {node: unit for unit, nodes in enumerate(self.units) for node in nodes}
        for unit, nodes in enumerate(self.units):
            following: Set[int] = {unit_of[target] for node in nodes for target in self._graph.out(node)}
            following.discard(unit)
            self._after.append(sorted(following))

    def after(self, unit: int) -> List[int]:
        return self._after[unit]

    def waiting(self) -> List[int]:
        """For each unit, how many others it waits for."""
        counts = [0] * len(self.units)
        for following in self._after:
            for unit in following:
                counts[unit] += 1
        return counts
