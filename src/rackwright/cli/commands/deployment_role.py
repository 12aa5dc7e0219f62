"""`rackwright deployment role`: the roles of a deployment, which it can have before they are bound to nodes."""

from typing import Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, confirm, fail
from rackwright.cli.output.printing import prints
from rackwright.cli.run_again import PlanOption, confirm_reruns, print_affected
from rackwright.cli.shared import Deployment, Filters, Limit, Role, SetOptions, Sort, Yes, parse_values, read_list

app = make_app("The roles of a deployment, with what is wanted of each there.")


@app.command("list")
@prints("role", "data", "leaving", empty="This deployment has no role.")
def list_all(deployment: Deployment, filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """The roles of a deployment. Leaving: taken out in the open proposal."""
    return read_list("/deployment_roles", filters, sort, limit, deployment=deployment)


@app.command("show")
@prints()
def show_one(deployment: Deployment, role: Role) -> Any:
    """One role of a deployment."""
    return _read_deployment_role(Client(), deployment, role)


@app.command()
@prints()
def add(deployment: Deployment, role: Role, set: SetOptions = None) -> Any:
    """Give a deployment a role in its proposal, bound to no node yet, with data for all of its noderoles to be."""
    client = Client()
    added = client.post("/deployment_roles", {"deployment": deployment, "role": role})
    return client.merge(f"/deployment_roles/{added['id']}", {"data": parse_values(set)}) if set else added


@app.command()
@prints()
def update(
    deployment: Deployment, role: Role, set: SetOptions = None, plan: PlanOption = False, yes: Yes = False
) -> Any:
    """Set data of a role for the whole deployment: --set provisioner='{"target_os": "debian-12"}'"""
    client = Client()
    deployment_role = _read_deployment_role(client, deployment, role)
    if plan:
        print_affected(client.get(f"/deployment_roles/{deployment_role['id']}/affected"))
        raise typer.Exit
    confirm_reruns(client, deployment, role, yes)
    return client.merge(f"/deployment_roles/{deployment_role['id']}", {"data": parse_values(set)})


@app.command()
@prints("role", "node", empty="It was bound to no node.")
def remove(deployment: Deployment, role: Role, yes: Yes = False) -> Any:
    """Take a role out of a deployment's proposal, with its noderoles there and what stands on those."""
    confirm(f"Take role {role} with all its noderoles out of {deployment}?", yes)
    client = Client()
    deployment_role = _read_deployment_role(client, deployment, role)
    return client.delete(f"/deployment_roles/{deployment_role['id']}")["noderoles"]


def _read_deployment_role(client: Client, deployment: str, role: str) -> dict[str, Any]:
    """Return a role of a deployment; end the command if the deployment does not have it."""
    deployment_roles = client.pages("/deployment_roles", 1, deployment=deployment, role=role)
    if not deployment_roles:
        fail(
            f"Deployment {deployment} has no role {role}. Add it with: rackwright deployment role add"
            f" {deployment} {role}",
            Exit.NOT_FOUND,
        )
    return deployment_roles[0]
