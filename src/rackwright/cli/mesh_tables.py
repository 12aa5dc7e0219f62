"""How the mesh looks to a person: tables of members and of their software."""

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
            labels,
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
