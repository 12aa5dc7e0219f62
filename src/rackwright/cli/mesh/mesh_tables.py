"""Tables of the mesh for a person: its members, their software, and the datastore."""

from typing import Any

from rich.markup import escape
from rich.table import Table

COLOURS = {"alive": "green", "suspect": "yellow", "dead": "red", "left": "dim", "removed": "dim"}


def members_table(members: list[dict[str, Any]]) -> Table:
    """Return a table of the members of the cluster."""
    table = Table("server", "address", "state", "since", "software", "labels", title=_summarize_members(members))
    for member in members:
        colour = COLOURS[member["state"]]
        name = member["name"] + (" (here)" if member["self"] else "")
        labels = " ".join(f"{key}={value}" for key, value in member["labels"].items())
        table.add_row(
            name,
            member["address"],
            f"[{colour}]{member['state']}[/]",
            format_age(member["seconds"]),
            summarize_checks(member["checks"], member["reasons"]),
            escape(labels),
        )
    return table


def status_table(status: dict[str, Any]) -> Table:
    """Return a table of the members, with what this server knows of itself and its cluster around it."""
    table = members_table(status["servers"])
    holders = ", ".join(status["authorities"]) or "[red]nobody alive[/]"
    table.title = f"{status['name']} at {status['address']}: {table.title}"
    table.caption = (
        f"CA {status['ca']}, held by {holders}\n"
        f"certificate until {status['certificate_expires'][:16]}, revocation list {status['revocations']},"
        f" {status['links']} connections, awareness {status['awareness']}\n{_summarize_holders(status['datastore'])}"
    )
    for part, reason in status["failing_parts"].items():
        table.caption += f"\n[red]the agent's {part} failed and was started again[/]: {escape(reason)}"
    return table


def _summarize_holders(holders: list[str]) -> str:
    if not holders:
        return "no datastore"
    warning = " [yellow](not fault tolerant)[/]" if len(holders) < 3 else ""
    return f"datastore on {', '.join(holders)}{warning}"


def summarize_checks(checks: dict[str, str], reasons: dict[str, str]) -> str:
    """Return how many checks of a server's software pass, or which fail and why."""
    if not checks:
        return "[dim]no checks[/]"
    failing = [name for name, state in checks.items() if state == "failing"]
    if not failing:
        return f"[green]{sum(state == 'passing' for state in checks.values())} passing[/]"
    return "\n".join(f"[red]{name} failing[/]: {escape(reasons.get(name, ''))}" for name in failing)


def format_age(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _summarize_members(members: list[dict[str, Any]]) -> str:
    alive = sum(member["state"] == "alive" for member in members)
    present = [member for member in members if member["state"] != "left"]
    return f"{alive} of {len(present)} servers alive"


def datastore_table(datastore: dict[str, Any]) -> Table:
    """Return a table of the servers that hold the datastore, with its health around it."""
    table = Table("server", "part", "state", "data", title=_summarize_datastore(datastore))
    for member in datastore["members"]:
        part = "learner" if member["learner"] else "leader" if member["leader"] else "voter"
        state = "[green]healthy[/]" if member["healthy"] else "[red]not healthy[/]"
        table.add_row(member["server"] or "(not started)", part, state, f"{member['bytes'] / 1e6:.1f} MB")
    reason = f" ({escape(datastore['why_not'])})" if datastore["why_not"] else ""
    lines = [f"this server: {datastore['here']}{reason}"]
    if datastore["conductor"]:
        lines.append(f"conducted by {datastore['conductor']}")
    if datastore["doing"]:
        lines.append(escape(datastore["doing"]))
    lines.append(f"{len(datastore['snapshots'])} snapshots here")
    if datastore["problem"]:
        lines.append(f"[red]{escape(datastore['problem'])}[/]")
    table.caption = "\n".join(lines)
    return table


def _summarize_datastore(datastore: dict[str, Any]) -> str:
    healthy = sum(member["healthy"] and not member["learner"] for member in datastore["members"])
    if not datastore["members"]:
        return "no datastore server is known here"
    if not datastore["quorum"]:
        return "[red]quorum lost: the datastore neither reads nor writes[/]"
    if not datastore["fault_tolerant"]:
        return f"[yellow]not fault tolerant: {healthy} of {datastore['count']} datastore servers[/]"
    return f"{healthy} of {datastore['count']} datastore servers are well"
