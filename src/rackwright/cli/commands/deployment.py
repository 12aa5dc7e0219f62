"""`rackwright deployment`: deployments, their proposals, plans, commits and snapshots."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.commands.deployment_role import app as role_app
from rackwright.cli.output.exits import BY_STATUS, Exit, confirm, fail
from rackwright.cli.output.lost_data import name_lost_data
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say
from rackwright.cli.shared import Deployment, Filters, Limit, Role, SetOptions, Sort, Yes, parse_values, read_list

app = make_app("What people want of their machines.")
app.add_typer(role_app, name="role")

MOST_WARNINGS = 20
MOST_TARGETS = 1000
"""The most nodes that one dry run asks about."""
COLUMNS = ("name", "parent", "state", "held", "noderoles")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
@prints(*COLUMNS, empty="No deployment fits.")
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All deployments, or those that fit."""
    return read_list("/deployments", filters, sort, limit)


@app.command("show")
@prints()
def show_one(deployment: Deployment) -> Any:
    """One deployment."""
    return Client().get(f"/deployments/{deployment}")


@app.command()
@prints()
def create(name: str, parent: str | None = None, description: str = "") -> Any:
    """A new deployment, with an open proposal."""
    return Client().post("/deployments", {"name": name, "parent": parent, "description": description})


@app.command()
@prints()
def update(deployment: Deployment, set: SetOptions = None) -> Any:
    """Change a deployment: --set description="The shop" """
    return Client().merge(f"/deployments/{deployment}", parse_values(set))


@app.command()
@prints(*COLUMNS)
def rename(deployment: Deployment, name: Annotated[str, typer.Argument(help="The new name.")]) -> Any:
    """Give a deployment another name."""
    return [Client().merge(f"/deployments/{deployment}", {"name": name})]


@app.command()
@prints(*COLUMNS)
def move(deployment: Deployment, parent: Deployment) -> Any:
    """Put a deployment, with all below it, under another one."""
    return [Client().merge(f"/deployments/{deployment}", {"parent": parent})]


@app.command()
def delete(deployment: Deployment, yes: Yes = False) -> None:
    """Remove a deployment. Its nodes go to its parent."""
    confirm(f"Remove deployment {deployment} with all its noderoles?", yes)
    Client().delete(f"/deployments/{deployment}")


@app.command()
@prints()
def propose(deployment: Deployment) -> Any:
    """Open a copy of what is committed, to edit it."""
    return Client().post(f"/deployments/{deployment}/propose")


@app.command()
@prints()
def recall(deployment: Deployment) -> Any:
    """Hold all work of a deployment and open a copy of what is committed. Commit or discard ends the hold."""
    return Client().post(f"/deployments/{deployment}/recall")


@app.command()
@prints()
def discard(deployment: Deployment, yes: Yes = False) -> Any:
    """Throw the open proposal away."""
    confirm(f"Throw away what is proposed for {deployment}?", yes)
    return Client().post(f"/deployments/{deployment}/discard")


@app.command()
def plan(deployment: Deployment, json: Json = False) -> None:
    """What a commit would do."""
    _print_plan(Client().post(f"/deployments/{deployment}/plan"), json)


@app.command()
def commit(
    deployment: Deployment,
    digest: Annotated[str | None, typer.Option(help="Only if the plan is still the one with this digest.")] = None,
    comment: Annotated[str, typer.Option("--comment", "-m", help="What for.")] = "",
    yes: Yes = False,
    watch: Annotated[bool, typer.Option(help="Follow the work until it is done.")] = False,
    json: Json = False,
) -> None:
    """Make the proposal what is wanted from now on. What it wipes is shown first, and asked: say --yes, or the digest
    of the plan that you saw."""
    client = Client()
    plan = client.post(f"/deployments/{deployment}/plan")
    if plan["wiped"]:
        if yes or digest is not None:
            _warn_of_lacks(deployment, plan["installs"])
        else:
            _show_what_is_wiped(plan)
        lost = name_lost_data(plan["installs"])
        what = f"This wipes the disks of {', '.join(plan['wiped'])}{': ' + lost if lost else ''}. Commit?"
        confirm(what, yes or digest is not None)
    body = {"digest": digest or plan["digest"], "comment": comment}
    _print_plan(client.post(f"/deployments/{deployment}/commit", body), json)
    if watch:
        from rackwright.cli.watch import follow

        follow(client, f"deployment {deployment}", deployment=deployment)


@app.command()
@prints("what", "node", "role", empty="They are the same.")
def diff(
    deployment: Deployment,
    old: Annotated[int | None, typer.Argument(help="A snapshot; what is committed if none is given.")] = None,
    new: Annotated[int | None, typer.Argument(help="Another; the proposal if none is given.")] = None,
) -> Any:
    """What differs between two snapshots of a deployment."""
    return _diff_rows(Client().get(f"/deployments/{deployment}/diff", old=old, new=new))


@app.command()
@prints()
def rollback(
    deployment: Deployment,
    snapshot: Annotated[
        int | None, typer.Argument(help="As `deployment snapshots` lists them; the last before head if none is given.")
    ] = None,
) -> Any:
    """Propose a copy of an earlier snapshot. What of it cannot come back is listed."""
    client = Client()
    if snapshot is None:
        earlier = client.pages("/snapshots", 1, deployment=deployment, state="archived", sort="-id")
        if not earlier:
            fail(f"Deployment {deployment} has no earlier snapshot to go back to.", Exit.NOT_FOUND)
        snapshot = earlier[0]["id"]
    return client.post(f"/deployments/{deployment}/rollback", {"snapshot": snapshot})


@app.command()
@prints("role", "node", "cohort", empty="All of it was bound already.")
def bind(
    deployment: Deployment,
    role: Role,
    nodes: Annotated[list[str], typer.Argument(help="The nodes, as many as you like.")],
    dry_run: Annotated[bool, typer.Option(help="Only say what it would take.")] = False,
) -> Any:
    """Bind a role to nodes in the deployment's proposal, with all that the role needs: to all of them, or to none."""
    client = Client()
    if dry_run and len(nodes) > 1:
        _check_each(client, deployment, role, nodes)
    bindings = [{"node": node, "role": role} for node in nodes]
    bound = client.post(f"/deployments/{deployment}/bind", {"bindings": bindings}, dry_run=dry_run or None)
    return bound["created"]


def _check_each(client: Client, deployment: str, role: str, nodes: Sequence[str]) -> None:
    """End the command with the reason of every node that refuses the role; binding all at once tells only the first."""
    refusals = []
    for first in range(0, len(nodes), MOST_TARGETS):
        body = {"nodes": nodes[first : first + MOST_TARGETS], "roles": [role], "each": "node"}
        dry_run = client.post(f"/deployments/{deployment}/bind", body, dry_run=True)
        refusals += [target["refused"] for target in dry_run["targets"] if target["refused"]]
    if refusals:
        *others, last = dict.fromkeys(problem["detail"] for problem in refusals)
        for reason in others:
            say(f"rackwright: {reason}", file=sys.stderr)
        fail(last, BY_STATUS.get(refusals[0]["status"], Exit.FAILED))


@app.command()
@prints("name", "built", "size", "recipe", empty="There is none.")
def systems() -> Any:
    """The operating systems that machines can be given. What has a recipe is built by: rackwright image build NAME"""
    return Client().get("/target_systems")


@app.command()
@prints("id", "state", "created_at", "comment", empty="Nothing was ever committed or proposed.")
def snapshots(deployment: Deployment, filters: Filters = None, sort: Sort = "-id", limit: Limit = None) -> Any:
    """The time line of a deployment, the newest first."""
    return read_list("/snapshots", filters, sort, limit, deployment=deployment)


@app.command()
def graph(deployment: Deployment, json: Json = False) -> None:
    """Its noderoles and what stands on what; as text in cohorts, or as JSON."""
    graph = Client().get(f"/deployments/{deployment}/graph")
    if json:
        from rackwright.cli.output.printing import Format, print_data

        print_data(graph, Format.JSON)
        return
    from rackwright.cli.output.plan_view import print_graph

    print_graph(graph)


def _show_what_is_wiped(plan: dict[str, Any]) -> None:
    """Print what a person is about to confirm, beside the output that a program may read."""
    from rackwright.cli.output.plan_view import print_installs

    print_installs(plan["installs"], stderr=True)
    say(f"digest: {plan['digest']}", file=sys.stderr)


def _warn_of_lacks(deployment: str, installs: list[dict[str, Any]]) -> None:
    """Print what the machines to be installed lack, as far as it fits a screen."""
    lacks = [f"{install['node']}: {lack}" for install in installs for lack in install["missing"]]
    for lack in lacks[:MOST_WARNINGS]:
        say(f"rackwright: {lack}", file=sys.stderr)
    if len(lacks) > MOST_WARNINGS:
        more = f"and {len(lacks) - MOST_WARNINGS} more: rackwright deployment plan {deployment}"
        say(f"rackwright: {more}", file=sys.stderr)


def _diff_rows(diff: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": change.replace("_", " "), **(line if isinstance(line, dict) else {"node": line, "role": ""})}
        for change, lines in diff.items()
        if isinstance(lines, list)
        for line in lines
    ]


def _print_plan(plan: dict[str, Any], json: bool) -> None:
    if json:
        from rackwright.cli.output.printing import Format, print_data

        print_data(plan, Format.JSON)
        return
    from rackwright.cli.output.plan_view import print_plan

    print_plan(plan)
