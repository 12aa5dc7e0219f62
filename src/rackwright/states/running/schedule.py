"""The schedule of a run: which vertices of the graph form a unit, and which unit waits for which.

In `justdoit` every vertex is a unit of its own; `genius` joins some. The units are checked to be free of cycles.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Set

from ..plan import Plan


class Schedule:
    """The units of a run and the edges between them."""

    def __init__(self, plan: Plan, mode: str) -> None:
        self._graph = plan.graph
        self.units: List[List[int]] = []
        self.explanation: List[str] = []
        self.batched: FrozenSet[int] = frozenset()
        """States that are applied as a batch even where they are alone in it"""
        self._successors: List[List[int]] = []
        if mode == "justdoit":
            self.units = [[vertex] for vertex in range(len(plan.graph))]
        elif mode == "genius":
            from ..genius import build_units, find_batched_sources

            self.units, self.explanation = build_units(plan)
            self.batched = find_batched_sources(plan)
        self._link()

    def _link(self) -> None:
        unit_of: Dict[int, int] = {vertex: unit for unit, vertices in enumerate(self.units) for vertex in vertices}
        for unit, vertices in enumerate(self.units):
            following: Set[int] = {unit_of[target] for vertex in vertices for target in self._graph.outgoing(vertex)}
            following.discard(unit)
            self._successors.append(sorted(following))

    def successors(self, unit: int) -> List[int]:
        """Return the units that wait for a unit."""
        return self._successors[unit]

    def waiting_counts(self) -> List[int]:
        """Return, for each unit, how many others it waits for."""
        counts = [0] * len(self.units)
        for following in self._successors:
            for unit in following:
                counts[unit] += 1
        return counts
