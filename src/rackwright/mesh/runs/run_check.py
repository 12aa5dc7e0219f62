"""Checks a run once, before any target gets its task: builds the plan of every target and compares all of the plans.

Runs in a child process of the agent that takes the request (`engine_process.py`). The job has the facts of every
target; the answer is how many states each target has, or all problems. Targets that differ only in their name share a
plan where the states do not use a name.
"""

import json
from base64 import b64decode
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from rackwright.mesh.runs.run_worker import RemoteOutputs, build_catalogue, make_plan
from rackwright.states.extensions import ExtensionRefused, FetchedModule
from rackwright.states.node import unpack_files
from rackwright.states.plan import Plan
from rackwright.states.refusal import RunRefused

NAME_FACTS = ("id", "host")
"""The facts that hold a server's own name."""


class JobModuleSource:
    """Modules of the datastore that were sent with the job."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self.modules = modules

    def names(self) -> list[str]:
        """Return no names: a module is fetched by name when a state uses it."""
        return []

    def fetch(self, name: str) -> FetchedModule | None:
        module = self.modules.get(name)
        if module is None:
            return None
        manifest = b64decode(module["manifest"]) if module["manifest"] else None
        return FetchedModule(b64decode(module["code"]), manifest, str(module["origin"]))


def check_job(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Check a run; return how many states each target has, or what is wrong."""
    try:
        unpack_files(folder, job["files"])
        return check_targets(folder, job)
    except RunRefused as refused:
        return {"errors": [str(problem) for problem in refused.problems]}
    except ExtensionRefused as refused_module:
        return {"errors": [str(refused_module)]}


def check_targets(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, dict[str, Any]] = job["facts"]
    targets = sorted(facts)
    catalogue = build_catalogue(folder, job, JobModuleSource(job["modules"]))
    plans: dict[str, Plan] = {}
    references: dict[str, list[tuple[str, str]]] = {}
    planned_targets: dict[str, str] = {}
    may_differ = _may_use_names(folder)
    for target in targets:
        unnamed = {key: value for key, value in facts[target].items() if key not in NAME_FACTS}
        unnamed_facts = json.dumps([unnamed], sort_keys=True)
        if not may_differ and unnamed_facts in planned_targets:
            equal_target = planned_targets[unnamed_facts]
            plans[target], references[target] = plans[equal_target], references[equal_target]
            continue
        remote = RemoteOutputs(None, targets)
        try:
            plans[target] = make_plan(folder, job, catalogue, remote, facts[target])
        except RunRefused as refused:
            return {"errors": [f"{target}: {problem}" for problem in refused.problems]}
        references[target], planned_targets[unnamed_facts] = remote.references, target
    problems = find_cross_server_problems(plans, references, job["mode"])
    return {"errors": problems} if problems else {"states": {name: len(plan.states) for name, plan in plans.items()}}


def _may_use_names(folder: Path) -> bool:
    """Return whether the states may differ between servers that have the same facts but their name."""
    marks = ("{{", "{%", "#!")
    texts = [path.read_text(errors="replace") for path in folder.rglob("*.sls")]
    return (folder / "vars" / "node").is_dir() or any(mark in text for text in texts for mark in marks)


def find_cross_server_problems(
    plans: dict[str, Plan], references: dict[str, list[tuple[str, str]]], mode: str
) -> list[str]:
    """Return what is wrong between servers: an output that no state makes, or servers that wait for each other."""
    if not any(references.values()):
        return []
    problems: list[str] = []
    sorter: TopologicalSorter[tuple[str, int]] = TopologicalSorter()
    for target, plan in plans.items():
        _add_own_order(sorter, target, plan, mode)
        for state, node, reference in _remote_references(plan):
            owner = plans.get(node)
            source = None if owner is None else _referenced_state(owner, reference)
            if source is None:
                problems.append(f"{target}: ${{node:{node}/{reference}}} refers to no state of {node}")
            else:
                sorter.add((target, state), (node, source))
    try:
        sorter.prepare()
    except CycleError as cycle:
        names = [f"{target}: {plans[target].states[plans[target].graph.owner[at]].id}" for target, at in cycle.args[1]]
        problems.append(f"servers wait for each other: {' -> '.join(names)}")
    return problems


def _add_own_order(sorter: "TopologicalSorter[tuple[str, int]]", target: str, plan: Plan, mode: str) -> None:
    """Add the order in which a target runs its own states."""
    for node in range(len(plan.graph)):
        sorter.add((target, node), *((target, source) for source in plan.graph.incoming(node)))
    if mode == "ansible":
        for before, after in zip(plan.sequence, plan.sequence[1:], strict=False):
            sorter.add((target, after), (target, before))


def _remote_references(plan: Plan) -> list[tuple[int, str, str]]:
    """Return each use of another server's output: the state that uses it, the server, and the reference."""
    references = []
    for state, keys in plan.filled_late.items():
        values = {"name": plan.states[state].name, **plan.states[state].arguments, **plan.states[state].options}
        for key in keys:
            for reference, _ in plan.references.find(values.get(key)):
                if reference is not None and reference.node:
                    references.append((state, reference.node, reference.remote_path))
    return references


def _referenced_state(plan: Plan, reference: str) -> int | None:
    ids = {state.id: state.index for state in plan.states}
    cut = reference.rfind(".")
    while cut > 0:
        if reference[:cut] in ids:
            return ids[reference[:cut]]
        cut = reference.rfind(".", 0, cut)
    return None
