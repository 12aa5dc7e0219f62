"""The graph of a run: which state waits for which, why, and in what order they go one after another.

Nodes are numbers. The first ones are the states; after them come the *looks*: where a state says `prereq`, its target
is looked at (dry-run) before, and that look is a node of its own. Everything here is free of recursion and, but for
requisites with globs, linear in states and edges (the sort adds its logarithm).
"""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import heapq
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from .combine import Requisite, State, requisites_in_entry_order
from .reading.keywords import WEIGHT
from .refusal import Problem, RunRefused, did_you_mean

LAST_OFFSET = 1000000
"""`order: last` is this far behind every number in use."""

_NO_EDGES: Dict[int, List[str]] = {}
_GLOB_CHARACTERS = frozenset("*?[]")


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """No garbage collection while many small things are made that all stay: it would look at them over and over."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Graph:
    """States, looks and the edges between them. An edge goes from what is waited for to what waits."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = states
        self.owner: List[int] = list(range(len(states)))
        """node -> the state it belongs to"""
        self.look: Dict[int, int] = {}
        """state -> the node that looks at it"""
        self._into: List[Optional[Dict[int, List[str]]]] = [None] * len(states)
        self._out: List[Optional[Dict[int, List[str]]]] = [None] * len(states)
        self.reasons: Dict[Tuple[int, int], str] = {}
        """Edges that no requisite asked for, and why they are there."""

    def __len__(self) -> int:
        return len(self.owner)

    def into(self, node: int) -> Dict[int, List[str]]:
        """What a node waits for, with the kinds of requisite."""
        return self._into[node] or _NO_EDGES

    def out(self, node: int) -> Dict[int, List[str]]:
        return self._out[node] or _NO_EDGES

    def is_look(self, node: int) -> bool:
        return node >= len(self.states)

    def add(self, source: int, target: int, kind: str, reason: str = "") -> None:
        forward = self._out[source]
        if forward is None:
            forward = self._out[source] = {}
        kinds = forward.get(target)
        if kinds is None:
            forward[target] = kinds = []
            backward = self._into[target]
            if backward is None:
                backward = self._into[target] = {}
            # One list for both directions: they are the same edge.
            backward[source] = kinds
        if kind not in kinds:
            kinds.append(kind)
        if reason:
            self.reasons.setdefault((source, target), reason)

    def remove(self, source: int, target: int) -> None:
        """Take an edge back, whatever its kinds."""
        self.reasons.pop((source, target), None)
        for ends, one in ((self._out[source], target), (self._into[target], source)):
            if ends is not None:
                ends.pop(one, None)

    def require(self, state: int, targets: Iterable[int], kind: str) -> None:
        for target in targets:
            if kind == "prereq":
                self._prereq(state, target)
            else:
                if state in self.look:
                    self.add(target, self.look[state], kind)
                self.add(target, state, kind)

    def _prereq(self, state: int, target: int) -> None:
        look = self.look.get(target)
        if look is None:
            look = len(self.owner)
            self.owner.append(target)
            self._into.append(None)
            self._out.append(None)
            self.look[target] = look
            # A look waits for whatever its state waits for.
            for source, kinds in list(self.into(target).items()):
                for kind in kinds:
                    if kind != "prereq":
                        self.add(source, look, kind)
        self.add(look, state, "prereq")
        self.add(state, target, "require")
        if state in self.look:
            self.add(look, self.look[state], "prereq")

    # Order

    @garbage_collection_paused()
    def order(self) -> List[int]:
        """All nodes one after another: requisites first, then `order`, then module, name and function.

        A node wants to run as early as the earliest of its dependants; that is compared first, its own order second.
        Raises Refused with the path if the requisites form a cycle.
        """
        ranks = _SortKeys(self)
        waiting = [0] * len(self.owner)
        for node, sources in enumerate(self._into):
            if sources:
                waiting[node] = sum(map(len, sources.values()))
        ready = [(ranks.key(node), node) for node in range(len(self.owner)) if not waiting[node]]
        heapq.heapify(ready)
        sequence: List[int] = []
        while ready:
            _, node = heapq.heappop(ready)
            sequence.append(node)
            for target, kinds in self.out(node).items():
                waiting[target] -= len(kinds)
                if not waiting[target]:
                    heapq.heappush(ready, (ranks.key(target), target))
        if len(sequence) != len(self.owner):
            raise RunRefused([self._told_cycle({node for node in range(len(self.owner)) if waiting[node]})])
        return sequence

    def _told_cycle(self, stuck: Set[int]) -> Problem:
        cycle = self.cycle(stuck)
        steps = []
        for position, node in enumerate(cycle):
            following = cycle[(position + 1) % len(cycle)]
            kinds = self.into(node)[following]
            first, second = self.states[self.owner[node]], self.states[self.owner[following]]
            kind = kinds[0]
            if kind == "require" and (following, node) not in self.reasons and first.index in self.look:
                # The edge that a prereq adds the other way round is told as what was written.
                kind = (
                    "require" if _has_requisite(first, "require", second) else "is run after, because of the prereq of,"
                )
            steps.append(f"{first.id!r} ({first.file}:{first.line}) {kind} {second.id!r}")
        state = self.states[self.owner[cycle[0]]]
        return Problem("the requisites form a cycle: " + ", ".join(steps), state.file, state.line)

    def cycle(self, stuck: Set[int]) -> List[int]:
        """One cycle among nodes of which each waits for another of them, as a list in which each waits for the next."""
        node = min(stuck)
        seen: Dict[int, int] = {}
        path: List[int] = []
        while node not in seen:
            seen[node] = len(path)
            path.append(node)
            node = next(source for source in self.into(node) if source in stuck)
        return path[seen[node] :]

    def reachable(self, source: int, target: int) -> bool:
        """Is there a path from one node to another?"""
        seen, stack = {source}, [source]
        while stack:
            for following in self.out(stack.pop()):
                if following == target:
                    return True
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return False


def _has_requisite(state: State, kind: str, other: State) -> bool:
    return any(requisite.value in (other.id, other.name) for requisite in state.requisites.get(kind, ()))


class _SortKeys:
    """The sort key of each node, as Salt has it: worked out when the node is free to run, and so in that order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._cap = 1
        for state in graph.states:
            order = state.order
            if type(order) is int and order > self._cap - 1 and order > 0:
                self._cap = order + 100
        self._own: List[Any] = [state.order for state in graph.states]
        self._settled = [False] * len(graph.states)

    def _number(self, index: int) -> float:
        """A state's order as a number, as its parents see it: not yet counted from the end, nor by place in `names`."""
        order = self._own[index]
        if not isinstance(order, (int, float)):
            order = {"last": self._cap + LAST_OFFSET, "first": 0}.get(order, self._cap)
            self._own[index] = order
        return float(order)

    def key(self, node: int) -> Tuple[Any, ...]:
        index = self._graph.owner[node]
        own = self._number(index)
        if not self._settled[index]:
            self._settled[index] = True
            own += self._graph.states[index].name_order / 10000.0
            if own < 0:
                own += self._cap + LAST_OFFSET
            self._own[index] = own
        earliest, heaviest = float("inf"), -1
        for target, kinds in self._graph.out(node).items():
            for kind in kinds:
                if heaviest <= WEIGHT[kind]:
                    heaviest = WEIGHT[kind]
                    earliest = min(earliest, self._number(self._graph.owner[target]))
        state = self._graph.states[index]
        return (min(own, earliest), own, f"{state.module}{state.name}{state.function}", state.id)


# From requisites to edges


class StateIndex:
    """Finds the states that a requisite means: by module, `id` or `sls`, and by ID or name, with globs."""

    def __init__(self, states: Sequence[State]) -> None:
        self._by: Dict[Tuple[str, str], List[int]] = {}
        self._sls: Dict[str, List[int]] = {}
        for state in states:
            for key in (state.module, "id"):
                self._put(self._by, (key, state.id), state.index)
                if state.name != state.id:
                    self._put(self._by, (key, state.name), state.index)
            for sls in (state.sls, *state.included_from):
                self._put(self._sls, sls, state.index)

    @staticmethod
    def _put(where: Dict[Any, List[int]], key: Any, index: int) -> None:
        known = where.get(key)
        if known is None:
            where[key] = [index]
        elif known[-1] != index:
            known.append(index)

    def find(self, requisite: Requisite) -> Optional[List[int]]:
        """The states meant, or None if there is none such. A glob over SLS may match nothing, as in Salt."""
        if requisite.state >= 0:
            return [requisite.state]
        glob = not _GLOB_CHARACTERS.isdisjoint(requisite.value)
        if requisite.key == "sls":
            if not glob:
                return self._sls.get(requisite.value)
            found = [i for sls, some in self._sls.items() if fnmatch.fnmatch(sls, requisite.value) for i in some]
            return list(dict.fromkeys(found))
        if not glob:
            return self._by.get((requisite.key, requisite.value))
        matched = [
            index
            for (key, name), some in self._by.items()
            if key == requisite.key and fnmatch.fnmatch(name, requisite.value)
            for index in some
        ]
        return list(dict.fromkeys(matched)) or None

    def exactly(self, key: str, value: str) -> List[int]:
        """The states of a module with this very ID or name."""
        return self._by.get((key, value), [])

    def names(self, key: str) -> Iterator[str]:
        if key == "sls":
            yield from self._sls
        else:
            yield from (name for module, name in self._by if module == key)

    def modules(self) -> Set[str]:
        return {module for module, _ in self._by} | {"sls"}

    def told_missing(self, state: State, kind: str, requisite: Requisite) -> Problem:
        told = f"{kind}: in {state.id!r}: no state {requisite.key}: {requisite.value!r} in this run"
        if requisite.key not in self.modules():
            elsewhere = sorted({module for module, name in self._by if name == requisite.value and module != "id"})
            near = f"; did you mean '{elsewhere[0]}: {requisite.value}'?" if elsewhere else ""
            told += near or f" (no state of the module {requisite.key!r}){did_you_mean(requisite.key, self.modules())}"
        else:
            told += did_you_mean(requisite.value, set(self.names(requisite.key)))
        return Problem(told, requisite.file, requisite.line)


@garbage_collection_paused()
def build_graph(states: Sequence[State], index: StateIndex, problems: List[Problem]) -> Graph:
    """The graph of all requisites. What has no target is added to the problems."""
    graph = Graph(states)
    for state in states:
        if state.requisites:
            for kind, requisite in requisites_in_entry_order(state):
                found = index.find(requisite)
                if found is None:
                    problems.append(index.told_missing(state, kind, requisite))
                else:
                    graph.require(state.index, found, kind)
    return graph
