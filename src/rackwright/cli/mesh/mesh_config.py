"""`rackwright mesh config` and `mesh repository`: settings of all servers, and branches that run when they move."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.mesh.mesh_options import AsJson, Folder, Yes, plain_errors
from rackwright.cli.mesh.mesh_run import MODES, parse_pairs, split_names
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.terminal import print_table, say
from rackwright.mesh import control
from rackwright.mesh.errors import BadRequest
from rackwright.mesh.folder import default_folder

repository_app = make_app("Branches that are run when they move.")


def add_verbs(app: typer.Typer) -> None:
    """Add the verbs of this module to `rackwright mesh`."""
    app.command()(config)
    app.add_typer(repository_app, name="repository")


@plain_errors
def config(
    settings: Annotated[list[str] | None, typer.Argument(help="KEY=VALUE to set; KEY= to take back.")] = None,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """The cluster's configuration: what counts on all servers before what their files say."""
    answer = control.ask(folder or default_folder(), "config", settings=parse_pairs(settings))
    if as_json:
        say(json.dumps(answer))
        return
    for key in answer["known"]:
        say(f"{key}={answer['config'].get(key, '')}")


@repository_app.command("add")
@plain_errors
def add(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    url: Annotated[str, typer.Argument(help="The git repository.")],
    key: Annotated[Path, typer.Option("--key", help="The operator's OpenSSH key that signs the order.")],
    on: Annotated[list[str] | None, typer.Option("--on", help="Names of servers, with * and ?.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="KEY=VALUE that a server must have.")] = None,
    fact: Annotated[list[str] | None, typer.Option("--fact", help="KEY=VALUE, such as os_family=Debian.")] = None,
    branch: Annotated[str, typer.Option("--env", help="The branch or tag.")] = "main",
    mode: Annotated[str, typer.Option(help=f"One of {', '.join(MODES)}.")] = "ansible",
    seconds: Annotated[float, typer.Option(help="How often to look.")] = 60.0,
    signed_commits: Annotated[bool, typer.Option(help="Only commits signed by a trusted key.")] = False,
    modules: Annotated[list[str] | None, typer.Option(help="A web folder with signed extension modules.")] = None,
    folder: Folder = None,
) -> None:
    """Run a branch on servers now, and again whenever it moves."""
    from rackwright.mesh.identity import trust
    from rackwright.mesh.runs.repository_orders import RepositoryOrder
    from rackwright.mesh.runs.run_model import Targets

    home = folder or default_folder()
    if mode not in MODES:
        raise BadRequest(f"{mode!r} is no mode; it is one of {', '.join(MODES)}")
    cluster = str(control.ask(home, "status")["ca"])
    targets = Targets(tuple(split_names(on)), parse_pairs(label), parse_pairs(fact))
    order = RepositoryOrder(name, cluster, url, branch, targets, mode, seconds, signed_commits, tuple(modules or ()))
    signature = trust.sign(order.dump().encode(), key)
    control.ask(home, "repository", action="add", order=order.dump(), signature=signature)
    say(f"{name} is run whenever {branch} moves, by a datastore server that has a trusted run-key in its folder.")


@repository_app.command("remove")
@plain_errors
def remove(name: Annotated[str, typer.Argument()], folder: Folder = None, yes: Yes = False) -> None:
    """Run a branch no more."""
    confirm(f"Run {name} no more when it moves?", yes)
    control.ask(folder or default_folder(), "repository", action="remove", name=name)
    say(f"{name} is run no more when it moves.")


@repository_app.command("list")
@plain_errors
def show(as_json: AsJson = False, folder: Folder = None) -> None:
    """The repositories, and the commit that was run last."""
    answer = control.ask(folder or default_folder(), "repository", action="list")
    if as_json:
        say(json.dumps(answer))
        return
    from rich.table import Table

    table = Table("name", "repository", "branch", "last commit")
    for repository in answer["repositories"]:
        last_commit = repository["seen"][:12] or "not yet"
        table.add_row(repository["name"], repository["url"], repository["branch"], last_commit)
    print_table(table)
