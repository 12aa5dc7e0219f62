"""Explains a plan: the order of the states with reasons, the graph for Graphviz, and what a mode does with it."""

from __future__ import annotations

from typing import Any, Dict, List

from .plan import Plan
from .reading.declarations import FIRST_ORDER
from .running.record import Mask


def list_steps(plan: Plan) -> List[Dict[str, Any]]:
    """Return the states in the order of `ansible` mode, each with what it waits for, as JSON values."""
    graph = plan.graph
    mask = Mask(plan.secrets)
    steps = []
    for vertex in plan.sequence:
        state = plan.states[graph.owner[vertex]]
        waits = []
        for source, kinds in graph.incoming(vertex).items():
            target = plan.states[graph.owner[source]]
            for kind in kinds:
                entry = {
                    "kind": kind,
                    "id": mask.text(target.id),
                    "function": target.qualified_function,
                    "look": graph.is_look(source),
                }
                if kind == "order":
                    entry["why"] = mask.text(graph.reasons.get((source, vertex), ""))
                waits.append(entry)
        steps.append(
            {
                "id": mask.text(state.id),
                "name": mask.text(state.name),
                "function": state.qualified_function,
                "look": graph.is_look(vertex),
                "order": state.order,
                "sls": state.sls,
                "file": state.file,
                "line": state.line,
                "after": waits,
            }
        )
    return steps


def list_step_lines(plan: Plan) -> List[str]:
    """Return the same as lines of text for people."""
    lines = []
    for number, step in enumerate(list_steps(plan), 1):
        reasons = []
        for wait in step["after"]:
            kind = "after (" + wait["why"] + ")" if wait["kind"] == "order" else wait["kind"]
            reasons.append(f"{kind} {wait['id']}{' (looked at)' if wait['look'] else ''}")
        order = step["order"]
        if isinstance(order, str) or (isinstance(order, (int, float)) and order < FIRST_ORDER):
            reasons.append(f"order {order}")
        prefix = "look at " if step["look"] else ""
        name = f" ({step['name']})" if step["name"] != step["id"] else ""
        why = f"   <- {', '.join(reasons)}" if reasons else ""
        lines.append(f"{number:>4}. {prefix}{step['function']} {step['id']}{name}   {step['file']}:{step['line']}{why}")
    for listener in plan.listeners:
        lines.append(
            f"      at the end: {plan.states[listener.watcher].id} listens to {plan.states[listener.target].id}"
        )
    return lines


def format_graphviz(plan: Plan) -> str:
    """Return the graph in the language of Graphviz."""
    graph = plan.graph
    mask = Mask(plan.secrets)
    lines = ["digraph states {", "  rankdir=LR;", "  node [shape=box];"]
    for vertex in plan.sequence:
        state = plan.states[graph.owner[vertex]]
        label = ("look at\n" if graph.is_look(vertex) else "") + state.qualified_function + "\n" + state.id
        style = ", style=dashed" if graph.is_look(vertex) else ""
        lines.append(f"  n{vertex} [label={_quoted(mask.text(label))}{style}];")
    for vertex in plan.sequence:
        for target, kinds in graph.outgoing(vertex).items():
            style = ", style=dotted" if kinds == ["order"] else ""
            lines.append(f"  n{vertex} -> n{target} [label={_quoted(', '.join(kinds))}{style}];")
    for listener in plan.listeners:
        lines.append(f'  n{listener.target} -> n{listener.watcher} [label="listen", style=dashed, constraint=false];')
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def explain_mode(plan: Plan, mode: str) -> List[str]:
    """Return, as lines of text, how a mode runs these states, and why."""
    mask = Mask(plan.secrets)
    count = len(plan.states)
    lines = [f"{count} states in {mode} mode."]
    lines += [mask.text(text) for text in explain_write_order(plan)]
    if mode == "ansible":
        lines.append("They run one after another in file order, as `order` and the requisites allow (see: state show).")
        return lines
    from .running.schedule import Schedule

    schedule = Schedule(plan, mode)
    ready_count = sum(1 for waiting in schedule.waiting_counts() if not waiting)
    ordered = [state.id for state in plan.states if isinstance(state.order, str) or (state.order or 0) < FIRST_ORDER]
    if ordered:
        lines.append(
            f"`order` is not heeded in this mode: {', '.join(repr(mask.text(state_id)) for state_id in ordered)}."
        )
    lines += [mask.text(text[0].upper() + text[1:]) + "." for text in schedule.explanation]
    if mode == "genius" and not schedule.explanation:
        lines.append("Nothing to merge.")
    lines.append(f"{len(schedule.units)} units of work; {ready_count} of them start at once.")
    return lines


def explain_write_order(plan: Plan) -> List[str]:
    """Return a line for each pair of states that are ordered only because they write the same resource."""
    graph = plan.graph
    lines = []
    for (source, target), why in graph.reasons.items():
        if graph.outgoing(source).get(target) != ["order"] or not why.startswith("both write"):
            continue
        if any(graph.has_path(other, target) for other in graph.outgoing(source) if other != target):
            continue
        first, second = plan.states[graph.owner[source]], plan.states[graph.owner[target]]
        if first is not second:
            lines.append(f"{second.id!r} waits for {first.id!r}: {why}, and no requisite puts one before the other.")
    return lines
