"""Checks a run once, before any target is told: builds the plan of every target and looks at all of them together.

In a child process of the agent that takes the request (`engine_process.py`). The job has the facts of every target; the
answer is how many states each has, or all that is wrong. Targets that differ in nothing but their name share the work
where the states do not ask for a name.
"""

import json
from base64 import b64decode
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from rackwright.mesh.runs.run_worker import OtherServers, catalogue_of, make_plan
from rackwright.states.extensions import ExtensionRefused, FetchedModule
from rackwright.states.node import unpack_files
from rackwright.states.plan import Plan
from rackwright.states.refusal import RunRefused

OWN = ("id", "host")


class GivenSource:
    """Modules of the datastore that came with the job."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self.modules = modules

    def names(self) -> list[str]:
        """None of them by itself: each is asked for by name, when a state wants it."""
        return []

    def fetch(self, name: str) -> FetchedModule | None:
        found = self.modules.get(name)
        if found is None:
            return None
        manifest = b64decode(found["manifest"]) if found["manifest"] else None
        return FetchedModule(b64decode(found["code"]), manifest, str(found["origin"]))


def checked(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        unpack_files(folder, job["files"])
        return check(folder, job)
    except RunRefused as refused:
        return {"errors": [str(problem) for problem in refused.problems]}
    except ExtensionRefused as refused_module:
        return {"errors": [str(refused_module)]}


def check(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, dict[str, Any]] = job["facts"]
    targets = sorted(facts)
    catalogue = catalogue_of(folder, job, GivenSource(job["modules"]))
    plans: dict[str, Plan] = {}
    asked: dict[str, list[tuple[str, str]]] = {}
    known: dict[str, str] = {}
    personal = _personal(folder)
    for target in targets:
        alike = json.dumps([{key: value for key, value in facts[target].items() if key not in OWN}], sort_keys=True)
        if not personal and alike in known:
            plans[target], asked[target] = plans[known[alike]], asked[known[alike]]
            continue
        remote = OtherServers(None, targets)
        try:
            plans[target] = make_plan(folder, job, catalogue, remote, facts[target])
        except RunRefused as refused:
            return {"errors": [f"{target}: {problem}" for problem in refused.problems]}
        asked[target], known[alike] = remote.asked, target
    problems = across(plans, asked, job["mode"])
    return {"errors": problems} if problems else {"states": {name: len(made.states) for name, made in plans.items()}}


def _personal(folder: Path) -> bool:
    """Whether anything in the tree may differ from server to server of the same kind."""
    words = ("{{", "{%", "#!")
    texts = [path.read_text(errors="replace") for path in folder.rglob("*.sls")]
    return (folder / "vars" / "node").is_dir() or any(word in text for text in texts for word in words)


def across(plans: dict[str, Plan], asked: dict[str, list[tuple[str, str]]], mode: str) -> list[str]:
    """What is wrong between the servers: an output that nobody makes, or servers that wait for each other."""
    if not any(asked.values()):
        return []
    problems: list[str] = []
    sorter: TopologicalSorter[tuple[str, int]] = TopologicalSorter()
    for target, made in plans.items():
        _own_order(sorter, target, made, mode)
        for state, node, reference in _uses(made):
            owner = plans.get(node)
            found = None if owner is None else _state_of(owner, reference)
            if found is None:
                problems.append(f"{target}: ${{node:{node}/{reference}}} refers to no state of {node}")
            else:
                sorter.add((target, state), (node, found))
    try:
        sorter.prepare()
    except CycleError as cycle:
        names = [f"{target}: {plans[target].states[plans[target].graph.owner[at]].id}" for target, at in cycle.args[1]]
        problems.append(f"servers wait for each other: {' -> '.join(names)}")
    return problems


def _own_order(sorter: "TopologicalSorter[tuple[str, int]]", target: str, made: Plan, mode: str) -> None:
    for node in range(len(made.graph)):
        sorter.add((target, node), *((target, source) for source in made.graph.incoming(node)))
    if mode == "ansible":
        for before, after in zip(made.sequence, made.sequence[1:], strict=False):
            sorter.add((target, after), (target, before))


def _uses(made: Plan) -> list[tuple[int, str, str]]:
    """Each use of another server's output: the state, the server, and what of it."""
    found = []
    for state, keys in made.filled_late.items():
        values = {"name": made.states[state].name, **made.states[state].arguments, **made.states[state].options}
        for key in keys:
            for reference, _ in made.references.find(values.get(key)):
                if reference is not None and reference.node:
                    found.append((state, reference.node, reference.remote_path))
    return found


def _state_of(made: Plan, reference: str) -> int | None:
    ids = {state.id: state.index for state in made.states}
    cut = reference.rfind(".")
    while cut > 0:
        if reference[:cut] in ids:
            return ids[reference[:cut]]
        cut = reference.rfind(".", 0, cut)
    return None
