"""Prints a plan as a diff, and a graph of noderoles as text.

New noderoles are green, removed ones red, and machines that are wiped stand out.
"""

from typing import Any

from rackwright.cli.output.terminal import open_console, say

MARKS = {
    "created": ("+", "green"),
    "rerun": ("~", "yellow"),
    "held_back": ("=", "blue"),
    "kept": (".", "magenta"),
    "removed": ("-", "red"),
    "relinked": ("&", "cyan"),
}
"""name of a list of the plan -> the mark and the colour of its lines"""


def print_plan(plan: dict[str, Any]) -> None:
    """Print what a commit would do, and the plan's digest."""
    from rich.text import Text

    console = open_console(soft_wrap=True)
    for change, (mark, style) in MARKS.items():
        for line in plan[change]:
            because = f"  ({line['because']})" if line.get("because") else ""
            console.print(Text(f"{mark} {line['role']} on {line['node']}{because}", style=style))
    for name in plan["roles_removed"]:
        console.print(Text(f"- role {name} leaves the deployment", style="red"))
    for name in plan["moved"]:
        console.print(Text(f"> {name} moves here", style="cyan"))
    for name in plan["wiped"]:
        console.print(Text(f"! {name} IS WIPED AND INSTALLED ANEW", style="bold white on red"))
    print_installs(plan["installs"])
    for problem in plan["network_problems"]:
        console.print(Text(f"  ? {problem}", style="red"))
    counted = (*MARKS, "roles_removed")
    counts = ", ".join(f"{len(plan[change])} {change.replace('_', ' ')}" for change in counted if plan[change])
    console.print(counts or "Nothing changes.")
    console.print(Text(f"digest: {plan['digest']}", style="dim"))


def show_reinstall(answer: dict[str, Any]) -> dict[str, Any] | None:
    """Print what a reinstall would do; the noderole that does it, if it was begun, is shown like any other object."""
    if "installs" not in answer:
        return answer
    print_installs(answer["installs"])
    say(f"digest: {answer['digest']}")
    return None


def print_installs(installs: list[dict[str, Any]], *, stderr: bool = False) -> None:
    """Print what machines are given, what they lack for it, and in red what is lost on each of their disks."""
    from rich.text import Text

    console = open_console(soft_wrap=True, stderr=stderr)
    for install in installs:
        target = f"{install['os'] or 'no system'} on {install['disk'] or 'an unknown disk'}"
        console.print(Text(f"  {install['node']}: {target}", style="bold"))
        for lack in install["missing"]:
            console.print(Text(f"  ? {install['node']}: {lack}", style="yellow"))
        for disk in install["wipes"]:
            style = "bold red" if disk["contents"] or not disk["known"] else ""
            console.print(Text(f"  ! {describe_wiped_disk(disk)}", style=style))
            for content in disk["contents"]:
                console.print(Text(f"      {content}", style="red"))


def describe_wiped_disk(disk: dict[str, Any]) -> str:
    """Return a disk that is written to, with its size and serial number, and whether anything is lost on it."""
    size = disk["bytes"]
    facts = [f"{size / 1e9:.1f} GB"] if size is not None else []
    if disk["serial"]:
        facts.append(f"serial {disk['serial']}")
    lost = "is WIPED, with:" if disk["contents"] else "is empty" if disk["known"] else "has what nobody knows"
    return f"{disk['name']}{' (' + ', '.join(facts) + ')' if facts else ''} {lost}"


def print_graph(graph: dict[str, Any]) -> None:
    """Print noderoles cohort by cohort, each with the noderoles that it depends on."""
    from rich.text import Text

    from rackwright.cli.output.printing import STYLES

    console = open_console(soft_wrap=True)
    titles = {vertex["id"]: f"{vertex['role']} on {vertex['node']}" for vertex in graph["vertices"]}
    parents: dict[int, list[int]] = {}
    for edge in graph["edges"]:
        parents.setdefault(edge["child"], []).append(edge["parent"])
    for vertex in sorted(graph["vertices"], key=lambda vertex: (vertex["cohort"], vertex["role"], vertex["node"])):
        needed = ", ".join(sorted(titles.get(parent, f"#{parent}") for parent in parents.get(vertex["id"], [])))
        text = Text(f"{vertex['cohort']:>3}  ")
        text.append(titles[vertex["id"]], style=STYLES.get(vertex["state"], ""))
        text.append(f"  {vertex['state'].upper()}", style="dim")
        text.append(f"  <- {needed}" if needed else "", style="dim")
        console.print(text)
    if not graph["whole"]:
        console.print("There are more than that; the web page shows all of them.")
