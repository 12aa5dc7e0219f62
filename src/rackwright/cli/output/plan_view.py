"""A plan as a diff to read, and a graph as text: what is made is green, what goes is red, what is wiped shouts."""

from typing import Any

from rackwright.cli.output.terminal import open_console

MARKS = {
    "created": ("+", "green"),
    "rerun": ("~", "yellow"),
    "held_back": ("=", "blue"),
    "removed": ("-", "red"),
    "relinked": ("&", "cyan"),
}
"""list of the plan -> how its lines look"""


def print_plan(plan: dict[str, Any]) -> None:
    from rich.text import Text

    console = open_console(soft_wrap=True)
    for what, (mark, style) in MARKS.items():
        for line in plan[what]:
            because = f"  ({line['because']})" if line.get("because") else ""
            console.print(Text(f"{mark} {line['role']} on {line['node']}{because}", style=style))
    for name in plan["roles_removed"]:
        console.print(Text(f"- role {name} leaves the deployment", style="red"))
    for name in plan["moved"]:
        console.print(Text(f"> {name} moves here", style="cyan"))
    for name in plan["wiped"]:
        console.print(Text(f"! {name} IS WIPED AND INSTALLED ANEW", style="bold white on red"))
    for install in plan["installs"]:
        given = f"  {install['node']}: {install['os'] or 'no system'} on {install['disk'] or 'an unknown disk'}"
        console.print(Text(given, style="bold"))
        for lack in install["missing"]:
            console.print(Text(f"  ? {install['node']}: {lack}", style="yellow"))
    counted = (*MARKS, "roles_removed")
    counts = ", ".join(f"{len(plan[what])} {what.replace('_', ' ')}" for what in counted if plan[what])
    console.print(counts or "Nothing changes.")
    console.print(Text(f"digest: {plan['digest']}", style="dim"))


def print_graph(graph: dict[str, Any]) -> None:
    """Cohort by cohort; under each noderole what it stands on."""
    from rich.text import Text

    from rackwright.cli.output.answers import STYLES

    console = open_console(soft_wrap=True)
    titles = {one["id"]: f"{one['role']} on {one['node']}" for one in graph["vertices"]}
    parents: dict[int, list[int]] = {}
    for edge in graph["edges"]:
        parents.setdefault(edge["child"], []).append(edge["parent"])
    for one in sorted(graph["vertices"], key=lambda one: (one["cohort"], one["role"], one["node"])):
        below = ", ".join(sorted(titles.get(parent, f"#{parent}") for parent in parents.get(one["id"], [])))
        text = Text(f"{one['cohort']:>3}  ")
        text.append(titles[one["id"]], style=STYLES.get(one["state"], ""))
        text.append(f"  {one['state'].upper()}", style="dim")
        text.append(f"  <- {below}" if below else "", style="dim")
        console.print(text)
    if not graph["whole"]:
        console.print("There are more than that; the web page shows all of them.")
