"""How the mesh looks to a person: tables of members, of their software and of the datastore."""

from typing import Any

from rich.markup import escape
from rich.table import Table

COLOURS = {"alive": "green", "suspect": "yellow", "dead": "red", "left": "dim", "removed": "dim"}


def members_table(members: list[dict[str, Any]]) -> Table:
    table = Table("server", "address", "state", "since", "software", "labels", title=_summary(members))
    for member in members:
        colour = COLOURS[member["state"]]
        name = member["name"] + (" (here)" if member["self"] else "")
        labels = " ".join(f"{key}={value}" for key, value in member["labels"].items())
        table.add_row(
            name,
            member["address"],
            f"[{colour}]{member['state']}[/]",
            ago(member["seconds"]),
            software(member["checks"], member["reasons"]),
            escape(labels),
        )
    return table


def status_table(told: dict[str, Any]) -> Table:
    table = members_table(told["servers"])
    holders = ", ".join(told["authorities"]) or "[red]nobody alive[/]"
    table.title = f"{told['name']} at {told['address']}: {table.title}"
    table.caption = (
        f"CA {told['ca']}, held by {holders}\n"
        f"certificate until {told['certificate_expires'][:16]}, revocation list {told['revocations']},"
        f" {told['links']} connections, awareness {told['awareness']}\n{_datastore(told['datastore'])}"
    )
    for part, why in told["failing_parts"].items():
        table.caption += f"\n[red]the agent's {part} failed and was started again[/]: {escape(why)}"
    return table


def _datastore(holders: list[str]) -> str:
    if not holders:
        return "no datastore"
    doubt = " [yellow](not fault tolerant)[/]" if len(holders) < 3 else ""
    return f"datastore on {', '.join(holders)}{doubt}"


def software(checks: dict[str, str], reasons: dict[str, str]) -> str:
    if not checks:
        return "[dim]no checks[/]"
    failing = [name for name, state in checks.items() if state == "failing"]
    if not failing:
        return f"[green]{sum(state == 'passing' for state in checks.values())} passing[/]"
    return "\n".join(f"[red]{name} failing[/]: {escape(reasons.get(name, ''))}" for name in failing)


def ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _summary(members: list[dict[str, Any]]) -> str:
    alive = sum(member["state"] == "alive" for member in members)
    here = [member for member in members if member["state"] != "left"]
    return f"{alive} of {len(here)} servers alive"


def datastore_table(told: dict[str, Any]) -> Table:
    table = Table("server", "part", "state", "data", title=_datastore_summary(told))
    for member in told["members"]:
        part = "learner" if member["learner"] else "leader" if member["leader"] else "voter"
        state = "[green]healthy[/]" if member["healthy"] else "[red]not healthy[/]"
        table.add_row(member["server"] or "(not started)", part, state, f"{member['bytes'] / 1e6:.1f} MB")
    lines = [f"this server: {told['here']}" + (f" ({escape(told['why_not'])})" if told["why_not"] else "")]
    if told["conductor"]:
        lines.append(f"conducted by {told['conductor']}")
    if told["doing"]:
        lines.append(escape(told["doing"]))
    lines.append(f"{len(told['snapshots'])} snapshots here")
    if told["problem"]:
        lines.append(f"[red]{escape(told['problem'])}[/]")
    table.caption = "\n".join(lines)
    return table


def _datastore_summary(told: dict[str, Any]) -> str:
    well = sum(member["healthy"] and not member["learner"] for member in told["members"])
    if not told["members"]:
        return "no datastore server is known here"
    if not told["quorum"]:
        return "[red]quorum lost: the datastore neither reads nor writes[/]"
    if not told["fault_tolerant"]:
        return f"[yellow]not fault tolerant: {well} of {told['count']} datastore servers[/]"
    return f"{well} of {told['count']} datastore servers are well"
