"""Groups the states of a run into units for `genius` mode.

Package sources go first, packages of one kind are installed in one transaction, the restarts of one service are joined,
and the files of one directory are written as one unit. Each pass only adds edges or joins vertices between which there
is no path, and after each of them the graph is checked to be free of cycles; a pass that fails the check is dropped. So
no requisite is ever broken.
"""

from __future__ import annotations

import posixpath
from collections import deque
from functools import partial
from typing import Callable, Deque, Dict, FrozenSet, Hashable, List, Optional, Tuple

from .combine import State
from .plan import Plan

Explanation = List[str]
Key = Optional[Hashable]


class Units:
    """Vertices joined into units, and the graph between the units."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.members: Dict[int, List[int]] = {vertex: [vertex] for vertex in range(len(plan.graph))}
        self.unit_of: List[int] = list(range(len(plan.graph)))
        self._position = {vertex: position for position, vertex in enumerate(plan.sequence)}

    def sort(self) -> Optional[List[int]]:
        """Return the units, each after those that it waits for; None if there is a cycle."""
        successors = self.successors()
        waiting = dict.fromkeys(self.members, 0)
        for following in successors.values():
            for unit in following:
                waiting[unit] += 1
        ready: Deque[int] = deque(unit for unit, count in waiting.items() if not count)
        ordered: List[int] = []
        while ready:
            unit = ready.popleft()
            ordered.append(unit)
            for following_unit in successors[unit]:
                waiting[following_unit] -= 1
                if not waiting[following_unit]:
                    ready.append(following_unit)
        return ordered if len(ordered) == len(self.members) else None

    def successors(self) -> Dict[int, Dict[int, None]]:
        graph, unit_of = self.plan.graph, self.unit_of
        successors: Dict[int, Dict[int, None]] = {}
        for unit_id, vertices in self.members.items():
            following = {unit_of[target]: None for vertex in vertices for target in graph.outgoing(vertex)}
            following.pop(unit_id, None)
            successors[unit_id] = following
        return successors

    def has_only_order_edges(self, unit: int, following: int) -> bool:
        """Return whether the only edges between two units are there because both write the same resource."""
        graph = self.plan.graph
        kinds = [
            graph.outgoing(vertex).get(target) for vertex in self.members[unit] for target in self.members[following]
        ]
        return all(kind in (None, ["order"]) for kind in kinds)

    def join(self, groups: List[List[int]]) -> bool:
        """Join the units of each group into one. If that would close a cycle, do nothing and return False."""
        previous_members, previous_units = dict(self.members), list(self.unit_of)
        for first, *others in groups:
            vertices = list(self.members[first])
            for other in others:
                vertices.extend(self.members.pop(other))
            self.members[first] = sorted(vertices, key=self._position.__getitem__)
            for vertex in vertices:
                self.unit_of[vertex] = first
        if self.sort() is not None:
            return True
        self.members, self.unit_of = previous_members, previous_units
        return False


def build_units(plan: Plan) -> Tuple[List[List[int]], Explanation]:
    """Return the units of a run in `genius` mode, and the explanation of what was joined and moved."""
    units = Units(plan)
    explanation: Explanation = []
    _put_sources_first(units, explanation)
    functions = sorted({state.qualified_function for state in plan.states if _has_package_batch(plan, state)})
    for function in functions:
        _join_groups(units, _group_states(plan, partial(_package_key, plan, function)), explanation, _explain_packages)
    _join_groups(
        units,
        _group_states(plan, lambda state: _service_key(plan, state)),
        explanation,
        _explain_services,
        same_resource=True,
    )
    _join_groups(units, _group_states(plan, lambda state: _directory_key(plan, state)), explanation, _explain_files)
    # Units in the order of the sequence, so that what is ready starts in the order people wrote it.
    position = {vertex: index for index, vertex in enumerate(plan.sequence)}
    ordered = sorted(units.members.values(), key=lambda vertices: min(position[vertex] for vertex in vertices))
    return ordered, explanation


# Package sources first


def _put_sources_first(units: Units, explanation: Explanation) -> None:
    """Add edges that put every package source before every package, unless a requisite says the opposite."""
    plan, graph = units.plan, units.plan.graph
    sources = [state for state in plan.states if state.module == "pkgrepo"]
    packages = [state for state in plan.states if state.module == "pkg"]
    if not sources or not packages:
        return
    added_edges: List[Tuple[int, int]] = []
    for source in sources:
        ancestors = _find_ancestors(plan, source.index)
        for package in packages:
            vertices = [package.index] + ([graph.look[package.index]] if package.index in graph.look else [])
            for vertex in vertices:
                if vertex not in ancestors and vertex not in graph.outgoing(source.index):
                    graph.add_edge(source.index, vertex, "order", "package sources go before packages")
                    added_edges.append((source.index, vertex))
    if units.sort() is None:
        for edge in added_edges:
            graph.remove_edge(*edge)
    elif added_edges:
        count = f"{len(sources)} package source{'s' if len(sources) > 1 else ''}"
        explanation.append(
            f"{count} before all packages, so that the lists are fetched once (no requisite says otherwise)"
        )


def find_batched_sources(plan: Plan) -> FrozenSet[int]:
    """Return the package sources that are applied as a batch, which fetches the lists for the packages after them.

    A single source is batched too: applied alone it would fetch its own lists, and the packages all lists once more.
    """
    if not any(state.module == "pkg" for state in plan.states):
        return frozenset()
    sources = (state for state in plan.states if state.module == "pkgrepo" and _has_package_batch(plan, state))
    return frozenset(state.index for state in sources if _is_joinable(plan, state))


def _find_ancestors(plan: Plan, vertex: int) -> Dict[int, None]:
    """Return every vertex that a vertex waits for, directly or through others."""
    seen: Dict[int, None] = {}
    stack = [vertex]
    while stack:
        for source in plan.graph.incoming(stack.pop()):
            if source not in seen:
                seen[source] = None
                stack.append(source)
    return seen


# Joining


def must_run_alone(state: State) -> bool:
    """Return whether the result of the state must be known before anything else is done."""
    return any(state.options.get(option) for option in ("failhard", "sync", "serialize"))


def _is_joinable(plan: Plan, state: State) -> bool:
    """Return whether a state may share a unit: not if it has a look or a `prereq`, or must run alone."""
    return not (state.index in plan.graph.look or "prereq" in state.requisites or must_run_alone(state))


def _group_states(plan: Plan, key_of_state: Callable[[State], Key]) -> Dict[Hashable, List[int]]:
    """Return the joinable states by key; states without a key are left out."""
    groups: Dict[Hashable, List[int]] = {}
    for state in plan.states:
        if not _is_joinable(plan, state):
            continue
        group_key = key_of_state(state)
        if group_key is not None:
            groups.setdefault(group_key, []).append(state.index)
    return groups


def _join_groups(
    units: Units,
    groups: Dict[Hashable, List[int]],
    explanation: Explanation,
    explain_group: Callable[[Plan, List[int]], str],
    same_resource: bool = False,
) -> None:
    for vertices in groups.values():
        if len(vertices) < 2:
            continue
        joinable_levels = [level for level in _group_by_depth(units, vertices, same_resource) if len(level) > 1]
        if joinable_levels and units.join(joinable_levels):
            for level in joinable_levels:
                explanation.append(explain_group(units.plan, units.members[level[0]]))


def _group_by_depth(units: Units, vertices: List[int], same_resource: bool) -> List[List[int]]:
    """Split vertices into the fewest groups that can be joined: by how many of them lie on the longest path to each.

    Two of one level have no path between them, and every path from one level leads to a later one, so joining a level
    closes no cycle; and there are as many levels as the longest chain has members, so fewer would break a requisite.
    Where all of them are the same resource, the edge that orders its writers does not keep them from being joined.
    """
    grouped_units = {units.unit_of[vertex] for vertex in vertices}
    depth: Dict[int, int] = {}
    levels: Dict[int, List[int]] = {}
    successors = units.successors()
    for unit in units.sort() or []:
        own_depth = depth.get(unit, 0)
        if unit in grouped_units:
            levels.setdefault(own_depth, []).append(unit)
            own_depth += 1
        for following in successors[unit]:
            if (
                same_resource
                and unit in grouped_units
                and following in grouped_units
                and units.has_only_order_edges(unit, following)
            ):
                depth[following] = max(depth.get(following, 0), own_depth - 1)
            elif depth.get(following, 0) < own_depth:
                depth[following] = own_depth
    return [levels[level] for level in sorted(levels)]


def _has_package_batch(plan: Plan, state: State) -> bool:
    return state.module in ("pkg", "pkgrepo") and plan.schemas[state.index].function.batch is not None


def _package_key(plan: Plan, function_name: str, state: State) -> Key:
    return function_name if state.qualified_function == function_name and _has_package_batch(plan, state) else None


def _service_key(plan: Plan, state: State) -> Key:
    """Return the same key for all states that would restart the same service; None for other states."""
    if plan.schemas[state.index].function.watch is None or state.module != "service":
        return None
    resources = plan.resources.get(state.index)
    return (state.qualified_function, tuple(resources)) if resources else None


def _directory_key(plan: Plan, state: State) -> Key:
    if state.module != "file" or "retry" in state.options or state.options.get("parallel"):
        return None
    paths = [resource.key for resource in plan.resources.get(state.index, ()) if resource.kind == "file"]
    return (state.qualified_function, posixpath.dirname(paths[0])) if len(paths) == 1 else None


def _quote_ids(plan: Plan, vertices: List[int]) -> str:
    return ", ".join(repr(plan.states[vertex].id) for vertex in vertices)


def _explain_packages(plan: Plan, vertices: List[int]) -> str:
    function = plan.states[vertices[0]].qualified_function
    return f"one {function} transaction for {_quote_ids(plan, vertices)}: there is no path between them"


def _explain_services(plan: Plan, vertices: List[int]) -> str:
    return f"one restart for {_quote_ids(plan, vertices)}: they are the same service and nothing waits in between"


def _explain_files(plan: Plan, vertices: List[int]) -> str:
    folder = posixpath.dirname(plan.resources[vertices[0]][0].key)
    return f"the files of {folder or '.'} together: {_quote_ids(plan, vertices)}"
