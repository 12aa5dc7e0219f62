"""The dependency graph of a run: which state waits for which, why, and the order in which the states are run.

A vertex is a number. The first vertices are the states; after them come the *looks*: where a state says `prereq`, its
target is checked (dry run) before that state runs, and that look is a vertex of its own. Nothing here recurses and,
except for requisites with globs, everything is linear in states and edges (the sort adds its logarithm).
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
"""How far `order: last` lies behind every number in use."""

_NO_EDGES: Dict[int, List[str]] = {}
_GLOB_CHARACTERS = frozenset("*?[]")


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the garbage collector while many small objects are created.

    All of them stay in use, and the collector would look at them over and over.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Graph:
    """The states of a run, their looks and the edges between them.

    An edge goes from the vertex that is waited for to the vertex that waits.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self.states = states
        self.owner: List[int] = list(range(len(states)))
        """vertex -> the state it belongs to"""
        self.look: Dict[int, int] = {}
        """state -> the vertex that is its look"""
        self._incoming: List[Optional[Dict[int, List[str]]]] = [None] * len(states)
        self._outgoing: List[Optional[Dict[int, List[str]]]] = [None] * len(states)
        self.reasons: Dict[Tuple[int, int], str] = {}
        """Edge (source, target) that comes from no requisite -> why it is there."""

    def __len__(self) -> int:
        return len(self.owner)

    def incoming(self, vertex: int) -> Dict[int, List[str]]:
        """Return the vertices that a vertex waits for, each with the kinds of requisite."""
        return self._incoming[vertex] or _NO_EDGES

    def outgoing(self, vertex: int) -> Dict[int, List[str]]:
        """Return the vertices that wait for a vertex, each with the kinds of requisite."""
        return self._outgoing[vertex] or _NO_EDGES

    def is_look(self, vertex: int) -> bool:
        return vertex >= len(self.states)

    def add_edge(self, source: int, target: int, kind: str, reason: str = "") -> None:
        """Add an edge, or one more kind to an edge that is there already."""
        forward = self._outgoing[source]
        if forward is None:
            forward = self._outgoing[source] = {}
        kinds = forward.get(target)
        if kinds is None:
            forward[target] = kinds = []
            backward = self._incoming[target]
            if backward is None:
                backward = self._incoming[target] = {}
            # One list for both directions: they are the same edge.
            backward[source] = kinds
        if kind not in kinds:
            kinds.append(kind)
        if reason:
            self.reasons.setdefault((source, target), reason)

    def remove_edge(self, source: int, target: int) -> None:
        """Remove an edge, whatever its kinds."""
        self.reasons.pop((source, target), None)
        for ends, neighbour in ((self._outgoing[source], target), (self._incoming[target], source)):
            if ends is not None:
                ends.pop(neighbour, None)

    def add_requisite(self, state: int, targets: Iterable[int], kind: str) -> None:
        """Add the edges of one requisite of a state."""
        for target in targets:
            if kind == "prereq":
                self._add_prereq(state, target)
            else:
                if state in self.look:
                    self.add_edge(target, self.look[state], kind)
                self.add_edge(target, state, kind)

    def _add_prereq(self, state: int, target: int) -> None:
        """Add the look of a `prereq` target, and put the state between the look and the target."""
        look = self.look.get(target)
        if look is None:
            look = len(self.owner)
            self.owner.append(target)
            self._incoming.append(None)
            self._outgoing.append(None)
            self.look[target] = look
            # A look waits for everything that its state waits for.
            for source, kinds in list(self.incoming(target).items()):
                for kind in kinds:
                    if kind != "prereq":
                        self.add_edge(source, look, kind)
        self.add_edge(look, state, "prereq")
        self.add_edge(state, target, "require")
        if state in self.look:
            self.add_edge(look, self.look[state], "prereq")

    # Order

    @garbage_collection_paused()
    def sort(self) -> List[int]:
        """Return all vertices in the order in which they run one after another.

        Requisites decide first, then `order`, then module, name and function. A vertex is to run as early as the
        earliest of its dependants; that is compared first, its own order second.
        Raises RunRefused with the path if the requisites form a cycle.
        """
        ranks = _SortKeys(self)
        waiting = [0] * len(self.owner)
        for vertex, sources in enumerate(self._incoming):
            if sources:
                waiting[vertex] = sum(map(len, sources.values()))
        ready = [(ranks.sort_key(vertex), vertex) for vertex in range(len(self.owner)) if not waiting[vertex]]
        heapq.heapify(ready)
        sequence: List[int] = []
        while ready:
            _, vertex = heapq.heappop(ready)
            sequence.append(vertex)
            for target, kinds in self.outgoing(vertex).items():
                waiting[target] -= len(kinds)
                if not waiting[target]:
                    heapq.heappush(ready, (ranks.sort_key(target), target))
        if len(sequence) != len(self.owner):
            raise RunRefused([self._cycle_problem({vertex for vertex in range(len(self.owner)) if waiting[vertex]})])
        return sequence

    def _cycle_problem(self, stuck: Set[int]) -> Problem:
        cycle = self.find_cycle(stuck)
        steps = []
        for position, vertex in enumerate(cycle):
            following = cycle[(position + 1) % len(cycle)]
            kinds = self.incoming(vertex)[following]
            first, second = self.states[self.owner[vertex]], self.states[self.owner[following]]
            kind = kinds[0]
            if kind == "require" and (following, vertex) not in self.reasons and first.index in self.look:
                # The edge that a prereq adds in the opposite direction is reported as what the file says.
                kind = (
                    "require" if _has_requisite(first, "require", second) else "is run after, because of the prereq of,"
                )
            steps.append(f"{first.id!r} ({first.file}:{first.line}) {kind} {second.id!r}")
        state = self.states[self.owner[cycle[0]]]
        return Problem("the requisites form a cycle: " + ", ".join(steps), state.file, state.line)

    def find_cycle(self, stuck: Set[int]) -> List[int]:
        """Return one cycle among vertices of which each waits for another: a list in which each waits for the next."""
        vertex = min(stuck)
        seen: Dict[int, int] = {}
        path: List[int] = []
        while vertex not in seen:
            seen[vertex] = len(path)
            path.append(vertex)
            vertex = next(source for source in self.incoming(vertex) if source in stuck)
        return path[seen[vertex] :]

    def has_path(self, source: int, target: int) -> bool:
        """Return whether there is a path from one vertex to another."""
        seen, stack = {source}, [source]
        while stack:
            for following in self.outgoing(stack.pop()):
                if following == target:
                    return True
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return False


def _has_requisite(state: State, kind: str, other: State) -> bool:
    return any(requisite.value in (other.id, other.name) for requisite in state.requisites.get(kind, ()))


class _SortKeys:
    """The sort key of each vertex, as Salt computes it: when the vertex is free to run, and so in that order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._order_limit = 1
        for state in graph.states:
            order = state.order
            if type(order) is int and order > self._order_limit - 1 and order > 0:
                self._order_limit = order + 100
        self._orders: List[Any] = [state.order for state in graph.states]
        self._is_final = [False] * len(graph.states)

    def _order_number(self, index: int) -> float:
        """Return a state's order as a number, as the states it waits for see it.

        It is not yet counted from the end, nor by the position in `names`.
        """
        order = self._orders[index]
        if not isinstance(order, (int, float)):
            order = {"last": self._order_limit + LAST_OFFSET, "first": 0}.get(order, self._order_limit)
            self._orders[index] = order
        return float(order)

    def sort_key(self, vertex: int) -> Tuple[Any, ...]:
        index = self._graph.owner[vertex]
        own_order = self._order_number(index)
        if not self._is_final[index]:
            self._is_final[index] = True
            own_order += self._graph.states[index].name_order / 10000.0
            if own_order < 0:
                own_order += self._order_limit + LAST_OFFSET
            self._orders[index] = own_order
        earliest, heaviest = float("inf"), -1
        for target, kinds in self._graph.outgoing(vertex).items():
            for kind in kinds:
                if heaviest <= WEIGHT[kind]:
                    heaviest = WEIGHT[kind]
                    earliest = min(earliest, self._order_number(self._graph.owner[target]))
        state = self._graph.states[index]
        return (min(own_order, earliest), own_order, f"{state.module}{state.name}{state.function}", state.id)


# From requisites to edges


class StateIndex:
    """Lookup of the states that a requisite names: by module, `id` or `sls`, and by ID or name, with globs."""

    def __init__(self, states: Sequence[State]) -> None:
        self._by_name: Dict[Tuple[str, str], List[int]] = {}
        self._by_sls: Dict[str, List[int]] = {}
        for state in states:
            for key in (state.module, "id"):
                self._put(self._by_name, (key, state.id), state.index)
                if state.name != state.id:
                    self._put(self._by_name, (key, state.name), state.index)
            for sls in (state.sls, *state.included_from):
                self._put(self._by_sls, sls, state.index)

    @staticmethod
    def _put(table: Dict[Any, List[int]], key: Any, index: int) -> None:
        indices = table.get(key)
        if indices is None:
            table[key] = [index]
        elif indices[-1] != index:
            indices.append(index)

    def find(self, requisite: Requisite) -> Optional[List[int]]:
        """Return the states that a requisite names; None if there are none.

        A glob over SLS may match nothing, as in Salt.
        """
        if requisite.state >= 0:
            return [requisite.state]
        glob = not _GLOB_CHARACTERS.isdisjoint(requisite.value)
        if requisite.key == "sls":
            if not glob:
                return self._by_sls.get(requisite.value)
            matched_sls = [
                i for sls, indices in self._by_sls.items() if fnmatch.fnmatch(sls, requisite.value) for i in indices
            ]
            return list(dict.fromkeys(matched_sls))
        if not glob:
            return self._by_name.get((requisite.key, requisite.value))
        matched = [
            index
            for (key, name), indices in self._by_name.items()
            if key == requisite.key and fnmatch.fnmatch(name, requisite.value)
            for index in indices
        ]
        return list(dict.fromkeys(matched)) or None

    def find_exact(self, key: str, value: str) -> List[int]:
        """Return the states of a module with exactly this ID or name."""
        return self._by_name.get((key, value), [])

    def names(self, key: str) -> Iterator[str]:
        """Return all IDs and names of a module's states (key `id`: of every state), or all SLS (key `sls`)."""
        if key == "sls":
            yield from self._by_sls
        else:
            yield from (name for module, name in self._by_name if module == key)

    def modules(self) -> Set[str]:
        return {module for module, _ in self._by_name} | {"sls"}

    def missing_target_problem(self, state: State, kind: str, requisite: Requisite) -> Problem:
        message = f"{kind}: in {state.id!r}: no state {requisite.key}: {requisite.value!r} in this run"
        if requisite.key not in self.modules():
            elsewhere = sorted({module for module, name in self._by_name if name == requisite.value and module != "id"})
            suggestion = f"; did you mean '{elsewhere[0]}: {requisite.value}'?" if elsewhere else ""
            message += (
                suggestion
                or f" (no state of the module {requisite.key!r}){did_you_mean(requisite.key, self.modules())}"
            )
        else:
            message += did_you_mean(requisite.value, set(self.names(requisite.key)))
        return Problem(message, requisite.file, requisite.line)


@garbage_collection_paused()
def build_graph(states: Sequence[State], index: StateIndex, problems: List[Problem]) -> Graph:
    """Return the graph of all requisites; a requisite without a target is added to `problems`."""
    graph = Graph(states)
    for state in states:
        if state.requisites:
            for kind, requisite in requisites_in_entry_order(state):
                targets = index.find(requisite)
                if targets is None:
                    problems.append(index.missing_target_problem(state, kind, requisite))
                else:
                    graph.add_requisite(state.index, targets, kind)
    return graph
