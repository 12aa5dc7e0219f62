"""`rackwright mesh runs`, `cancel`, `events`, `trust` and `module`: runs across servers, and what they need.

`mesh run` itself is in `mesh_run.py`.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.mesh import mesh_run
from rackwright.cli.mesh.mesh_options import AsJson, Folder, Yes, plain_errors
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.terminal import say
from rackwright.mesh import control
from rackwright.mesh.folder import default_folder

RAW_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


def add_verbs(app: typer.Typer) -> None:
    """Add the verbs of this module to `rackwright mesh`."""
    # The options of `run` are those of `mesh_run.py`, which is called directly unless somebody asks for all verbs.
    app.command(context_settings=RAW_ARGUMENTS, add_help_option=False)(run)
    app.command()(runs)
    app.command()(cancel)
    app.command()(events)
    app.command()(module)
    app.add_typer(trust_app, name="trust")


trust_app = make_app("Whose runs and modules the servers obey.")


def run(context: typer.Context) -> None:
    """Bring servers into a state, and watch it happen. Ctrl-C leaves it running; see: mesh runs RUN."""
    raise typer.Exit(mesh_run.main(context.args))


@plain_errors
def runs(
    run: Annotated[str | None, typer.Argument(help="One run, to see what came of it.")] = None,
    cursor: Annotated[str, typer.Option(help="Begin after this point; each event has its own.")] = "",
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """The runs that are kept; or one of them, live while it goes on."""
    home = folder or default_folder()
    if run is not None:
        raise typer.Exit(mesh_run.show_run(control.listen_lines(home, "follow", run=run, cursor=cursor), as_json))
    answer = control.ask(home, "runs")
    if as_json:
        say(json.dumps(answer))
        return
    from rackwright.cli.mesh.mesh_run_view import print_runs

    print_runs(answer["runs"])


@plain_errors
def cancel(
    run: Annotated[str, typer.Argument(help="The run; see: mesh runs.")],
    why: Annotated[str, typer.Option(help="What whoever watches it is told.")] = "somebody asked for it",
    as_json: AsJson = False,
    folder: Folder = None,
    yes: Yes = False,
) -> None:
    """End what has not ended of a run, on all its servers. What was done stays done."""
    confirm(f"End run {run} on all its servers?", yes)
    answer = control.ask(folder or default_folder(), "cancel", run=run, why=why)
    if as_json:
        say(json.dumps(answer))
    elif answer["cancelled"]:
        say(f"Cancelled on {', '.join(answer['cancelled'])}.")
    else:
        say("It had ended everywhere already.")


@plain_errors
def events(
    cursor: Annotated[str, typer.Option(help="Begin after this point; each event has its own.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes.")] = False,
    folder: Folder = None,
) -> None:
    """What happened in the cluster and in its runs, one JSON object a line, each with a cursor to go on from."""
    try:
        for answer in control.listen(folder or default_folder(), "events", cursor=cursor, follow=follow):
            if answer["event"]["kind"] != "still_here":
                say(json.dumps(answer), flush=True)
    except KeyboardInterrupt:
        return


@plain_errors
def module(
    file: Annotated[Path | None, typer.Argument(help="A signed module to put into the datastore.")] = None,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """Give an extension module to all servers; without a file, the modules that are there."""
    home = folder or default_folder()
    answer = control.ask(home, "module", file=str(file.absolute())) if file else control.ask(home, "modules")
    if as_json:
        say(json.dumps(answer))
    elif file:
        say(f"{answer['name']} {answer['version']}, signed by {answer['signer']}, is in the datastore.")
    else:
        say("\n".join(answer["modules"]) or "no modules")


@trust_app.command("add")
@plain_errors
def trust_add(
    name: Annotated[str, typer.Argument(help="The operator.")],
    key: Annotated[Path, typer.Argument(help="The public key, such as id_ed25519.pub.")],
    folder: Folder = None,
) -> None:
    """Trust an operator's key on all servers. On the server that holds the CA."""
    answer = control.ask(folder or default_folder(), "trust", action="add", name=name, key=key.read_text())
    say(f"{name} is trusted; the list is at version {answer['version']}.")


@trust_app.command("remove")
@plain_errors
def trust_remove(
    name: Annotated[str, typer.Argument(help="The operator.")], folder: Folder = None, yes: Yes = False
) -> None:
    """Trust an operator's key no longer. On the server that holds the CA."""
    confirm(f"Trust the key of {name} no longer?", yes)
    answer = control.ask(folder or default_folder(), "trust", action="remove", name=name)
    say(f"{name} is no longer trusted; the list is at version {answer['version']}.")


@trust_app.command("list")
@plain_errors
def trust_list(as_json: AsJson = False, folder: Folder = None) -> None:
    """The keys that this server trusts."""
    answer = control.ask(folder or default_folder(), "trust", action="list")
    lines = [f"{name} {key}" for name, key in sorted(answer["keys"].items())]
    say(json.dumps(answer) if as_json else "\n".join(lines) or "no key is trusted yet: rackwright mesh trust add")
