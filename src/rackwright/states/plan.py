"""Plans a run: decides everything that can be decided before anything is touched, or refuses with all problems.

Reads the tree, combines it into states, finds and validates their functions and arguments, resolves references and
requisites, and sorts the states.
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
    """A `listen`: the state `watcher` reacts at the end of the run if the state `target` changed."""

    watcher: int
    target: int
    declared_by: int


class Plan:
    """Everything that is decided about a run before it starts."""

    def __init__(
        self, tree: Tree, states: List[State], variables: Dict[str, Any], node: Optional[Dict[str, Any]] = None
    ) -> None:
        self.tree = tree
        self.node = node or {}
        """The facts of the machine that the run is for"""
        self.states = states
        self.variables = variables
        self.schemas: List[Schema] = []
        """One schema for each state; states of the same function share it."""
        self.graph: Graph
        self.sequence: List[int] = []
        """All vertices of the graph in the order in which `ansible` mode runs them."""
        self.listeners: List[Listener] = []
        self.references: References
        self.filled_late: Dict[int, List[str]] = {}
        """state -> the names of its arguments and options that refer to other states' outputs"""
        self.secrets: Set[str] = set()
        """The texts that must not be shown."""
        self.resources: Dict[int, List[Resource]] = {}
        """state -> what it writes"""


@garbage_collection_paused()
def build_plan(
    tree: Tree,
    sls: Optional[List[str]],
    variables: Optional[Dict[str, Any]] = None,
    node: Optional[Dict[str, Any]] = None,
    catalogue: Optional[Catalogue] = None,
    remote: Optional[RemoteOutputs] = None,
) -> Plan:
    """Return the plan of a run of these SLS; None stands for those that `top.sls` selects. Raises RunRefused."""
    node = node or {}
    variables = merge_variables(read_tree_variables(tree, node), variables or {})
    with Renderer(tree, variables, node) as renderer:
        selected_sls = select_top_sls(tree, renderer, node) if sls is None else sls
        declared = Reader(tree, renderer).read(selected_sls)
    return complete_plan(Plan(tree, combine(declared), variables, node), catalogue or Catalogue(), remote)


def complete_plan(plan: Plan, catalogue: Catalogue, remote: Optional[RemoteOutputs] = None) -> Plan:
    """Complete a plan that has its states: schemas, references, graph, listeners and sequence. Raises RunRefused."""
    problems: List[Problem] = []
    _find_functions(plan, catalogue, problems)
    if problems:
        raise RunRefused(problems)
    index = StateIndex(plan.states)
    plan.references = References(index, [state.id for state in plan.states], remote)
    for state in plan.states:
        _find_references(plan, state, problems)
        _validate_state(plan, state, problems)
    plan.graph = build_graph(plan.states, index, problems)
    _add_listeners(plan, index, problems)
    if problems:
        raise RunRefused(problems)
    plan.sequence = plan.graph.sort()
    position_of = {vertex: position for position, vertex in enumerate(plan.sequence)}
    plan.listeners.sort(key=lambda listener: position_of[listener.declared_by])
    _keep_writers_apart(plan)
    return plan


def read_tree_variables(tree: Tree, node: Dict[str, Any]) -> Dict[str, Any]:
    """Return the variables of the folder `vars/`: its files in the order of their names, then the file of this node."""
    from .reading.sls import parse_yaml

    folder = tree.root / "vars"
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".yml", ".yaml", ".sls"))
    name = str(node.get("id", ""))
    if name and "/" not in name:
        paths += [
            path
            for path in (folder / "node" / f"{name}{suffix}" for suffix in (".yml", ".yaml", ".sls"))
            if path.is_file()
        ]
    variables: Dict[str, Any] = {}
    for path in paths:
        relative = str(path.relative_to(tree.root))
        content = parse_yaml(tree.read(relative), relative)
        if content is None:
            continue
        if not isinstance(content, dict):
            raise RunRefused([Problem("a file of variables is a mapping", relative, 1)])
        variables = merge_variables(variables, content)
    return variables


def _find_functions(plan: Plan, catalogue: Catalogue, problems: List[Problem]) -> None:
    schemas: Dict[str, Schema] = {}
    for state in plan.states:
        schema = schemas.get(state.qualified_function)
        if schema is None:
            function, message = catalogue.find(state.module, state.function)
            if function is None:
                problems.append(Problem(f"{state.id!r}: {message}", state.file, state.line))
                continue
            schema = schemas[state.qualified_function] = Schema(function)
        plan.schemas.append(schema)
        if schema.function.watch is None:
            # The function does not react, so a watch is no more than waiting for the target.
            for kind, replacement in (("watch", "require"), ("watch_any", "require_any")):
                if kind in state.requisites:
                    requisites = state.requisites.pop(kind)
                    state.requisites[replacement] = [*state.requisites.get(replacement, ()), *requisites]


_FILLED_OPTIONS = ("unless", "onlyif", "creates", "check_cmd")


def _find_references(plan: Plan, state: State, problems: List[Problem]) -> None:
    """Find the references of a state to outputs of others; each one is also a requirement."""
    values: Dict[str, Any] = {"name": state.name, **state.arguments}
    values.update((key, state.options[key]) for key in _FILLED_OPTIONS if key in state.options)
    keys_filled_late = [key for key, value in values.items() if has_reference(value)]
    if not keys_filled_late:
        return
    plan.filled_late[state.index] = keys_filled_late
    for key in keys_filled_late:
        file, line = state.lines.get(key, (state.file, state.line))
        for reference, problem in plan.references.find(values[key]):
            if reference is None:
                problems.append(Problem(f"{state.id!r}: {problem}", file, line))
            elif reference.state >= 0:
                _require_reference(plan, state, reference, file, line)
        problem = _unsafe_reason(plan, state, key, values)
        if problem:
            problems.append(Problem(f"{state.id!r}: {key}: {problem}", file, line))


def _unsafe_reason(plan: Plan, state: State, key: str, values: Dict[str, Any]) -> str:
    """Return why outputs of other states cannot stay values in this argument or option; empty if they can."""
    schema = plan.schemas[state.index]
    read_by = schema.read_by(key)
    if read_by == TEMPLATE and state.arguments.get("template") and any(plan.references.find(values[key])):
        return "an output of another state would be read as a template; hand it over in context:"
    shell = values.get("shell") if "shell" in schema.arguments and not has_reference(values.get("shell")) else None
    return plan.references.unsafe_reason(values[key], read_by, shell)


def _require_reference(plan: Plan, state: State, reference: Reference, file: str, line: int) -> None:
    target = plan.states[reference.state]
    requirements = state.requisites.setdefault("require", [])
    requisite = Requisite(target.module, target.id, file, line, target.index)
    if requisite not in requirements:
        requirements.append(requisite)


def _validate_state(plan: Plan, state: State, problems: List[Problem]) -> None:
    schema = plan.schemas[state.index]
    written = {"name": state.name, **state.arguments}
    for key in [key for key in state.options if key in schema.arguments]:
        # The function has an argument of that name, so the value is for the function.
        written[key] = state.options.pop(key)
    for key in IGNORED_OPTIONS:
        if key not in schema.arguments:
            written.pop(key, None)
    keys_filled_late = plan.filled_late.get(state.index, ())
    arguments, argument_problems = schema.validate(written, keys_filled_late)
    for key, message in argument_problems:
        file, line = state.lines.get(key, (state.file, state.line))
        problems.append(Problem(f"{state.id!r}: {state.qualified_function} {message}", file, line))
    state.arguments = written if keys_filled_late else arguments
    for key in schema.secrets:
        plan.secrets.update(collect_secret_texts(written.get(key)))
    problems.extend(check_options(state))
    if argument_problems or keys_filled_late:
        return
    resources = schema.function.resources(arguments)
    if resources:
        plan.resources[state.index] = resources


def collect_secret_texts(value: Any) -> Set[str]:
    """Return the texts in a secret value that must not be shown, line by line too: outputs are cut into lines."""
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


def _add_listeners(plan: Plan, index: StateIndex, problems: List[Problem]) -> None:
    def twins(state: State) -> List[int]:
        """Return all states that share a listener's ID and module: the `names` of one block all react."""
        return index.find_exact(state.module, state.id)

    for state in plan.states:
        for requisite in state.listen:
            for target in _find_targets(index, state, "listen", requisite, problems):
                plan.listeners.extend(Listener(twin, target, state.index) for twin in twins(state))
        for requisite in state.listen_in:
            for watcher in _find_targets(index, state, "listen_in", requisite, problems):
                plan.listeners.extend(Listener(twin, state.index, state.index) for twin in twins(plan.states[watcher]))
    for watcher in {listener.watcher for listener in plan.listeners}:
        state = plan.states[watcher]
        if plan.schemas[watcher].function.watch is None:
            function = state.qualified_function
            message = f"{state.id!r}: {function} has nothing to do on a change, so listen is of no use; use onchanges"
            problems.append(Problem(message, state.file, state.line))


def _find_targets(
    index: StateIndex, state: State, kind: str, requisite: Requisite, problems: List[Problem]
) -> List[int]:
    targets = index.find(requisite)
    if targets is None:
        problems.append(index.missing_target_problem(state, kind, requisite))
    return targets or []


def _keep_writers_apart(plan: Plan) -> None:
    """Add edges so that writers of the same resource run in the order of `ansible` mode, in every mode.

    A look reads what its state would write, so it is ordered among the writers too. Edges that follow the sequence
    cannot form a cycle.
    """
    if not plan.resources:
        return
    last_writer: Dict[Resource, int] = {}
    graph = plan.graph
    for vertex in plan.sequence:
        for resource in plan.resources.get(graph.owner[vertex], ()):
            previous = last_writer.get(resource)
            if previous is not None and previous != vertex and vertex not in graph.outgoing(previous):
                graph.add_edge(previous, vertex, "order", f"both write {resource.kind} {resource.key}")
            last_writer[resource] = vertex
