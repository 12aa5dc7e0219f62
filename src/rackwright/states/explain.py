"""Says why: the order of a run with its reasons, the graph for Graphviz, and what a mode does with the states."""

from __future__ import annotations

from typing import Any, Dict, List

from .plan import Plan
from .reading.declarations import FIRST_ORDER
from .running.record import Mask


def list_steps(plan: Plan) -> List[Dict[str, Any]]:
    """The states in the order of `ansible` mode, each with what it waits for."""
    graph = plan.graph
    mask = Mask(plan.secrets)
    told = []
    for node in plan.sequence:
        state = plan.states[graph.owner[node]]
        waits = []
        for source, kinds in graph.into(node).items():
            target = plan.states[graph.owner[source]]
            for kind in kinds:
                entry = {
                    "kind": kind,
                    "id": mask.text(target.id),
                    "function": target.full,
                    "look": graph.is_look(source),
                }
                if kind == "order":
                    entry["why"] = mask.text(graph.reasons.get((source, node), ""))
                waits.append(entry)
        told.append(
            {
                "id": mask.text(state.id),
                "name": mask.text(state.name),
                "function": state.full,
                "look": graph.is_look(node),
                "order": state.order,
                "sls": state.sls,
                "file": state.file,
                "line": state.line,
                "after": waits,
            }
        )
    return told


def list_step_lines(plan: Plan) -> List[str]:
    """The same for people."""
    said = []
    for number, step in enumerate(list_steps(plan), 1):
        reasons = []
        for wait in step["after"]:
            kind = "after (" + wait["why"] + ")" if wait["kind"] == "order" else wait["kind"]
            reasons.append(f"{kind} {wait['id']}{' (looked at)' if wait['look'] else ''}")
        order = step["order"]
        if isinstance(order, str) or (isinstance(order, (int, float)) and order < FIRST_ORDER):
            reasons.append(f"order {order}")
        what = "look at " if step["look"] else ""
        named = f" ({step['name']})" if step["name"] != step["id"] else ""
        why = f"   <- {', '.join(reasons)}" if reasons else ""
        said.append(f"{number:>4}. {what}{step['function']} {step['id']}{named}   {step['file']}:{step['line']}{why}")
    for listener in plan.listeners:
        said.append(
            f"      at the end: {plan.states[listener.watcher].id} listens to {plan.states[listener.target].id}"
        )
    return said


def format_graphviz(plan: Plan) -> str:
    """The graph for Graphviz."""
    graph = plan.graph
    mask = Mask(plan.secrets)
    said = ["digraph states {", "  rankdir=LR;", "  node [shape=box];"]
    for node in plan.sequence:
        state = plan.states[graph.owner[node]]
        label = ("look at\n" if graph.is_look(node) else "") + state.full + "\n" + state.id
        style = ", style=dashed" if graph.is_look(node) else ""
        said.append(f"  n{node} [label={_quoted(mask.text(label))}{style}];")
    for node in plan.sequence:
        for target, kinds in graph.out(node).items():
            style = ", style=dotted" if kinds == ["order"] else ""
            said.append(f"  n{node} -> n{target} [label={_quoted(', '.join(kinds))}{style}];")
    for listener in plan.listeners:
        said.append(f'  n{listener.target} -> n{listener.watcher} [label="listen", style=dashed, constraint=false];')
    return "\n".join([*said, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def explain_mode(plan: Plan, mode: str) -> List[str]:
    """What the mode makes of these states, and why."""
    mask = Mask(plan.secrets)
    count = len(plan.states)
    said = [f"{count} states in {mode} mode."]
    said += [mask.text(text) for text in explain_write_order(plan)]
    if mode == "ansible":
        said.append("They run one after another in file order, as `order` and the requisites allow (see: state show).")
        return said
    from .running.schedule import Schedule

    schedule = Schedule(plan, mode)
    free = sum(1 for waiting in schedule.waiting() if not waiting)
    ordered = [state.id for state in plan.states if isinstance(state.order, str) or (state.order or 0) < FIRST_ORDER]
    if ordered:
        said.append(f"`order` is not heeded in this mode: {', '.join(repr(mask.text(one)) for one in ordered)}.")
    said += [mask.text(text[0].upper() + text[1:]) + "." for text in schedule.explanation]
    if mode == "genius" and not schedule.explanation:
        said.append("Nothing to merge.")
    said.append(f"{len(schedule.units)} units of work; {free} of them start at once.")
    return said


def explain_write_order(plan: Plan) -> List[str]:
    """The edges between states that write the same thing, where nothing else keeps them apart."""
    graph = plan.graph
    said = []
    for (source, target), why in graph.reasons.items():
        if graph.out(source).get(target) != ["order"] or not why.startswith("both write"):
            continue
        if any(graph.reachable(other, target) for other in graph.out(source) if other != target):
            continue
        first, second = plan.states[graph.owner[source]], plan.states[graph.owner[target]]
        if first is not second:
            said.append(f"{second.id!r} waits for {first.id!r}: {why}, and no requisite puts one before the other.")
    return said
