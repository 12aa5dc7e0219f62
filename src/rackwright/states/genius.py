"""What `genius` mode rewrites before the run: package sources first, packages of one kind in one transaction, the
restarts of one service joined, the files of one directory together.

Each pass only ever adds edges or joins nodes between which there is no path, and after each of them the whole is
checked to be free of cycles; a pass that fails the check is dropped. So no requisite is ever broken.
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
    """Nodes joined into units, and the graph between those."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.members: Dict[int, List[int]] = {node: [node] for node in range(len(plan.graph))}
        self.unit: List[int] = list(range(len(plan.graph)))
        self._place = {node: place for place, node in enumerate(plan.sequence)}

    def order(self) -> Optional[List[int]]:
        """The units with each behind what it waits for, or None if there is a cycle."""
        after = self.after()
        waiting = dict.fromkeys(self.members, 0)
        for following in after.values():
            for unit in following:
                waiting[unit] += 1
        ready: Deque[int] = deque(unit for unit, count in waiting.items() if not count)
        ordered: List[int] = []
        while ready:
            unit = ready.popleft()
            ordered.append(unit)
            for behind in after[unit]:
                waiting[behind] -= 1
                if not waiting[behind]:
                    ready.append(behind)
        return ordered if len(ordered) == len(self.members) else None

    def after(self) -> Dict[int, Dict[int, None]]:
        graph, unit = self.plan.graph, self.unit
        after: Dict[int, Dict[int, None]] = {}
        for one, nodes in self.members.items():
            following = {unit[target]: None for node in nodes for target in graph.out(node)}
            following.pop(one, None)
            after[one] = following
        return after

    def only_kept_apart(self, unit: int, following: int) -> bool:
        """Is there nothing between two units but the edge for writing the same thing?"""
        graph = self.plan.graph
        kinds = [graph.out(node).get(target) for node in self.members[unit] for target in self.members[following]]
        return all(kind in (None, ["order"]) for kind in kinds)

    def join(self, groups: List[List[int]]) -> bool:
        """Join the units of each group into one. False, and nothing done, if that would close a cycle."""
        kept_members, kept_unit = dict(self.members), list(self.unit)
        for first, *others in groups:
            nodes = list(self.members[first])
            for other in others:
                nodes.extend(self.members.pop(other))
            self.members[first] = sorted(nodes, key=self._place.__getitem__)
            for node in nodes:
                self.unit[node] = first
        if self.order() is not None:
            return True
        self.members, self.unit = kept_members, kept_unit
        return False


def build_units(plan: Plan) -> Tuple[List[List[int]], Explanation]:
    """The units of a run in `genius` mode, and what was done to get them."""
    units = Units(plan)
    said: Explanation = []
    _put_sources_first(units, said)
    functions = sorted({state.full for state in plan.states if _has_package_batch(plan, state)})
    for function in functions:
        _join_groups(units, _group_states(plan, partial(_package_key, plan, function)), said, _explain_packages)
    _join_groups(
        units, _group_states(plan, lambda state: _service_key(plan, state)), said, _explain_services, same_resource=True
    )
    _join_groups(units, _group_states(plan, lambda state: _directory_key(plan, state)), said, _explain_files)
    # Units in the order of the sequence, so that what is ready starts in the order people wrote it.
    place = {node: index for index, node in enumerate(plan.sequence)}
    ordered = sorted(units.members.values(), key=lambda nodes: min(place[node] for node in nodes))
    return ordered, said


# Package sources first


def _put_sources_first(units: Units, said: Explanation) -> None:
    """Every package source before every package, wherever no requisite says the opposite."""
    plan, graph = units.plan, units.plan.graph
    sources = [state for state in plan.states if state.module == "pkgrepo"]
    packages = [state for state in plan.states if state.module == "pkg"]
    if not sources or not packages:
        return
    moved: List[Tuple[int, int]] = []
    for source in sources:
        needed = _find_ancestors(plan, source.index)
        for package in packages:
            nodes = [package.index] + ([graph.look[package.index]] if package.index in graph.look else [])
            for node in nodes:
                if node not in needed and node not in graph.out(source.index):
                    graph.add(source.index, node, "order", "package sources go before packages")
                    moved.append((source.index, node))
    if units.order() is None:
        for edge in moved:
            graph.remove(*edge)
    elif moved:
        count = f"{len(sources)} package source{'s' if len(sources) > 1 else ''}"
        said.append(f"{count} before all packages, so that the lists are fetched once (no requisite says otherwise)")


def find_batched_sources(plan: Plan) -> FrozenSet[int]:
    """The package sources whose batch fetches the lists for the packages behind them, also where there is only one:
    brought about alone it would fetch its own lists, and the packages all lists once more.
    """
    if not any(state.module == "pkg" for state in plan.states):
        return frozenset()
    sources = (state for state in plan.states if state.module == "pkgrepo" and _has_package_batch(plan, state))
    return frozenset(state.index for state in sources if _is_joinable(plan, state))


def _find_ancestors(plan: Plan, node: int) -> Dict[int, None]:
    """Everything that a node waits for, however far away."""
    seen: Dict[int, None] = {}
    stack = [node]
    while stack:
        for source in plan.graph.into(stack.pop()):
            if source not in seen:
                seen[source] = None
                stack.append(source)
    return seen


# Joining


def must_run_alone(state: State) -> bool:
    """Whether what comes of the state must be known before anything else is done."""
    return any(state.options.get(option) for option in ("failhard", "sync", "serialize"))


def _is_joinable(plan: Plan, state: State) -> bool:
    """A state that is looked at, or that looks, keeps to itself."""
    return not (state.index in plan.graph.look or "prereq" in state.requisites or must_run_alone(state))


def _group_states(plan: Plan, key: Callable[[State], Key]) -> Dict[Hashable, List[int]]:
    """States by key, those without one left out."""
    groups: Dict[Hashable, List[int]] = {}
    for state in plan.states:
        if not _is_joinable(plan, state):
            continue
        found = key(state)
        if found is not None:
            groups.setdefault(found, []).append(state.index)
    return groups


def _join_groups(
    units: Units,
    groups: Dict[Hashable, List[int]],
    said: Explanation,
    told: Callable[[Plan, List[int]], str],
    same_resource: bool = False,
) -> None:
    for nodes in groups.values():
        if len(nodes) < 2:
            continue
        joined = [level for level in _group_by_depth(units, nodes, same_resource) if len(level) > 1]
        if joined and units.join(joined):
            for level in joined:
                said.append(told(units.plan, units.members[level[0]]))


def _group_by_depth(units: Units, nodes: List[int], same_resource: bool) -> List[List[int]]:
    """The fewest groups: by how many of the nodes lie on the longest path to each.

    Two of one level have no path between them, and every path from one level leads to a later one, so joining a level
    closes no cycle; and there are as many levels as the longest chain has members, so fewer would break a requisite.
    Where all of them are the same resource, the edge that keeps its writers apart is no obstacle to joining them.
    """
    wanted = {units.unit[node] for node in nodes}
    depth: Dict[int, int] = {}
    levels: Dict[int, List[int]] = {}
    after = units.after()
    for unit in units.order() or []:
        mine = depth.get(unit, 0)
        if unit in wanted:
            levels.setdefault(mine, []).append(unit)
            mine += 1
        for following in after[unit]:
            if same_resource and unit in wanted and following in wanted and units.only_kept_apart(unit, following):
                depth[following] = max(depth.get(following, 0), mine - 1)
            elif depth.get(following, 0) < mine:
                depth[following] = mine
    return [levels[level] for level in sorted(levels)]


def _has_package_batch(plan: Plan, state: State) -> bool:
    return state.module in ("pkg", "pkgrepo") and plan.schemas[state.index].function.batch is not None


def _package_key(plan: Plan, wanted: str, state: State) -> Key:
    return wanted if state.full == wanted and _has_package_batch(plan, state) else None


def _service_key(plan: Plan, state: State) -> Key:
    """States that would restart the same service."""
    if plan.schemas[state.index].function.watch is None or state.module != "service":
        return None
    resources = plan.resources.get(state.index)
    return (state.full, tuple(resources)) if resources else None


def _directory_key(plan: Plan, state: State) -> Key:
    if state.module != "file" or "retry" in state.options or state.options.get("parallel"):
        return None
    paths = [resource.key for resource in plan.resources.get(state.index, ()) if resource.kind == "file"]
    return (state.full, posixpath.dirname(paths[0])) if len(paths) == 1 else None


def _quote_ids(plan: Plan, nodes: List[int]) -> str:
    return ", ".join(repr(plan.states[node].id) for node in nodes)


def _explain_packages(plan: Plan, nodes: List[int]) -> str:
    function = plan.states[nodes[0]].full
    return f"one {function} transaction for {_quote_ids(plan, nodes)}: there is no path between them"


def _explain_services(plan: Plan, nodes: List[int]) -> str:
    return f"one restart for {_quote_ids(plan, nodes)}: they are the same service and nothing waits in between"


def _explain_files(plan: Plan, nodes: List[int]) -> str:
    folder = posixpath.dirname(plan.resources[nodes[0]][0].key)
    return f"the files of {folder or '.'} together: {_quote_ids(plan, nodes)}"
