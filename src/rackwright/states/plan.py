"""The plan of a run: everything that can be decided before anything is touched, or the refusal with all that is wrong.

Reads the tree, combines it into states, finds and validates their functions and arguments, resolves references and
requisites, and puts the whole in order.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set

from .catalogue import Catalogue, Schema
from .combine import Requisite, State, combine
from .graph import Graph, StateIndex, build_graph, garbage_collection_paused
from .module import Resource
from .options import check_options
from .outputs import Reference, References, RemoteOutputs, has_reference
from .reading.declarations import Reader, select_top_sls
from .reading.keywords import IGNORED_OPTIONS
from .reading.render import Renderer
from .reading.tree import Tree, merge_variables
from .refusal import Problem, RunRefused
from .shelltext import TEMPLATE


class Listener(NamedTuple):
    """`watcher` reacts at the end if `target` changed."""

    watcher: int
    target: int
    declared_by: int


class Plan:
    """A run, decided."""

    def __init__(
        self, tree: Tree, states: List[State], variables: Dict[str, Any], node: Optional[Dict[str, Any]] = None
    ) -> None:
        self.tree = tree
        self.node = node or {}
        """The facts of the machine that the run is for"""
        self.states = states
        self.variables = variables
        self.schemas: List[Schema] = []
        """One for each state; states of one function share it."""
        self.graph: Graph
        self.sequence: List[int] = []
        """All nodes one after another, as `ansible` mode runs them."""
        self.listeners: List[Listener] = []
        self.references: References
        self.filled_late: Dict[int, List[str]] = {}
        """state -> the arguments and options that refer to other states' outputs"""
        self.secrets: Set[str] = set()
        self.resources: Dict[int, List[Resource]] = {}


@garbage_collection_paused()
def build_plan(
    tree: Tree,
    sls: Optional[List[str]],
    variables: Optional[Dict[str, Any]] = None,
    node: Optional[Dict[str, Any]] = None,
    catalogue: Optional[Catalogue] = None,
    remote: Optional[RemoteOutputs] = None,
) -> Plan:
    """Plan a run of these SLS; None stands for what `top.sls` says. Raises Refused."""
    node = node or {}
    variables = merge_variables(read_tree_variables(tree, node), variables or {})
    with Renderer(tree, variables, node) as renderer:
        wanted = select_top_sls(tree, renderer, node) if sls is None else sls
        high = Reader(tree, renderer).read(wanted)
    return complete_plan(Plan(tree, combine(high), variables, node), catalogue or Catalogue(), remote)


def complete_plan(made: Plan, catalogue: Catalogue, remote: Optional[RemoteOutputs] = None) -> Plan:
    """Plan states that are already there."""
    problems: List[Problem] = []
    _find_functions(made, catalogue, problems)
    if problems:
        raise RunRefused(problems)
    index = StateIndex(made.states)
    made.references = References(index, [state.id for state in made.states], remote)
    for state in made.states:
        _find_references(made, state, problems)
        _validate_state(made, state, problems)
    made.graph = build_graph(made.states, index, problems)
    _add_listeners(made, index, problems)
    if problems:
        raise RunRefused(problems)
    made.sequence = made.graph.order()
    position = {node: place for place, node in enumerate(made.sequence)}
    made.listeners.sort(key=lambda listener: position[listener.declared_by])
    _keep_writers_apart(made)
    return made


def read_tree_variables(tree: Tree, node: Dict[str, Any]) -> Dict[str, Any]:
    """What `vars/` says: its files in the order of their names, then the one of this node."""
    from .reading.sls import parse_yaml

    folder = tree.root / "vars"
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".yml", ".yaml", ".sls"))
    name = str(node.get("id", ""))
    if name and "/" not in name:
        paths += [
            path for path in (folder / "node" / f"{name}{end}" for end in (".yml", ".yaml", ".sls")) if path.is_file()
        ]
    variables: Dict[str, Any] = {}
    for path in paths:
        relative = str(path.relative_to(tree.root))
        read = parse_yaml(tree.read(relative), relative)
        if read is None:
            continue
        if not isinstance(read, dict):
            raise RunRefused([Problem("a file of variables is a mapping", relative, 1)])
        variables = merge_variables(variables, read)
    return variables


def _find_functions(made: Plan, catalogue: Catalogue, problems: List[Problem]) -> None:
    schemas: Dict[str, Schema] = {}
    for state in made.states:
        schema = schemas.get(state.full)
        if schema is None:
            function, told = catalogue.find(state.module, state.function)
            if function is None:
                problems.append(Problem(f"{state.id!r}: {told}", state.file, state.line))
                continue
            schema = schemas[state.full] = Schema(function)
        made.schemas.append(schema)
        if schema.function.watch is None:
            # Nothing would react, so what is left of a watch is to wait for it.
            for kind, instead in (("watch", "require"), ("watch_any", "require_any")):
                if kind in state.requisites:
                    moved = state.requisites.pop(kind)
                    state.requisites[instead] = [*state.requisites.get(instead, ()), *moved]


_FILLED_OPTIONS = ("unless", "onlyif", "creates", "check_cmd")


def _find_references(made: Plan, state: State, problems: List[Problem]) -> None:
    """Find the state's references; each is a requirement."""
    values: Dict[str, Any] = {"name": state.name, **state.arguments}
    values.update((key, state.options[key]) for key in _FILLED_OPTIONS if key in state.options)
    late = [key for key, value in values.items() if has_reference(value)]
    if not late:
        return
    made.filled_late[state.index] = late
    for key in late:
        file, line = state.lines.get(key, (state.file, state.line))
        for reference, told in made.references.find(values[key]):
            if reference is None:
                problems.append(Problem(f"{state.id!r}: {told}", file, line))
            elif reference.state >= 0:
                _require_reference(made, state, reference, file, line)
        told = _unsafe_reason(made, state, key, values)
        if told:
            problems.append(Problem(f"{state.id!r}: {key}: {told}", file, line))


def _unsafe_reason(made: Plan, state: State, key: str, values: Dict[str, Any]) -> str:
    """Why outputs of other states cannot stay values in this argument or option; empty if they can."""
    schema = made.schemas[state.index]
    read_by = schema.read_by(key)
    if read_by == TEMPLATE and state.arguments.get("template") and any(made.references.find(values[key])):
        return "an output of another state would be read as a template; hand it over in context:"
    shell = values.get("shell") if "shell" in schema.arguments and not has_reference(values.get("shell")) else None
    return made.references.unsafe(values[key], read_by, shell)


def _require_reference(made: Plan, state: State, reference: Reference, file: str, line: int) -> None:
    target = made.states[reference.state]
    required = state.requisites.setdefault("require", [])
    wanted = Requisite(target.module, target.id, file, line, target.index)
    if wanted not in required:
        required.append(wanted)


def _validate_state(made: Plan, state: State, problems: List[Problem]) -> None:
    schema = made.schemas[state.index]
    given = {"name": state.name, **state.arguments}
    for key in [key for key in state.options if key in schema.arguments]:
        # The function has an argument of that name, so it is the function's to heed.
        given[key] = state.options.pop(key)
    for key in IGNORED_OPTIONS:
        if key not in schema.arguments:
            given.pop(key, None)
    late = made.filled_late.get(state.index, ())
    arguments, found = schema.validate(given, late)
    for key, told in found:
        file, line = state.lines.get(key, (state.file, state.line))
        problems.append(Problem(f"{state.id!r}: {state.full} {told}", file, line))
    state.arguments = given if late else arguments
    for key in schema.secrets:
        made.secrets.update(collect_secret_texts(given.get(key)))
    problems.extend(check_options(state))
    if found or late:
        return
    resources = schema.function.resources(arguments)
    if resources:
        made.resources[state.index] = resources


def collect_secret_texts(value: Any) -> Set[str]:
    """The texts in a secret value that must not be shown, line by line too, because outputs are cut into lines."""
    texts: Set[str] = set()
    if isinstance(value, dict):
        for part in value.values():
            texts |= collect_secret_texts(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            texts |= collect_secret_texts(part)
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        text = str(value).strip()
        texts.update(part for part in (text, *(line.strip() for line in text.splitlines())) if len(part) >= 4)
    return texts


def _add_listeners(made: Plan, index: StateIndex, problems: List[Problem]) -> None:
    def twins(state: State) -> List[int]:
        """All states that share the listener's ID and module react: the `names` of one block listen together."""
        return index.exactly(state.module, state.id)

    for state in made.states:
        for requisite in state.listen:
            for target in _find_targets(index, state, "listen", requisite, problems):
                made.listeners.extend(Listener(twin, target, state.index) for twin in twins(state))
        for requisite in state.listen_in:
            for watcher in _find_targets(index, state, "listen_in", requisite, problems):
                made.listeners.extend(Listener(twin, state.index, state.index) for twin in twins(made.states[watcher]))
    for watcher in {listener.watcher for listener in made.listeners}:
        state = made.states[watcher]
        if made.schemas[watcher].function.watch is None:
            told = f"{state.id!r}: {state.full} has nothing to do on a change, so listen is of no use; use onchanges"
            problems.append(Problem(told, state.file, state.line))


def _find_targets(
    index: StateIndex, state: State, kind: str, requisite: Requisite, problems: List[Problem]
) -> List[int]:
    found = index.find(requisite)
    if found is None:
        problems.append(index.told_missing(state, kind, requisite))
    return found or []


def _keep_writers_apart(made: Plan) -> None:
    """Two writers of one resource go in the order of `ansible` mode, in every mode.

    A look reads what its state would write, so it keeps its place among the writers too. Edges that follow the sequence
    cannot form a cycle.
    """
    if not made.resources:
        return
    last: Dict[Resource, int] = {}
    graph = made.graph
    for node in made.sequence:
        for resource in made.resources.get(graph.owner[node], ()):
            before = last.get(resource)
            if before is not None and before != node and node not in graph.out(before):
                graph.add(before, node, "order", f"both write {resource.kind} {resource.key}")
            last[resource] = node
