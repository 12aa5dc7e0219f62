"""`rackwright mesh run, runs, events, trust, module`: states on many servers at once, and what came of them.

The operator's key signs here, where the operator is; the agent only carries what was signed.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.mesh_options import AsJson, Folder, plain_errors
from rackwright.mesh import control
from rackwright.mesh.errors import BadRequest
from rackwright.mesh.folder import default_folder

if TYPE_CHECKING:
    from rackwright.mesh.run_model import Request

MODES = ("ansible", "justdoit", "genius")


def add_verbs(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(runs)
    app.command()(events)
    app.command()(module)
    app.add_typer(trust_app, name="trust")


trust_app = make_app("Whose runs and modules the servers obey.")


@plain_errors
def run(
    tree: Annotated[Path | None, typer.Argument(help="A tree of states, or one .sls file.")] = None,
    on: Annotated[list[str] | None, typer.Option("--on", help="Names of servers, with * and ?.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="KEY=VALUE that a server must have.")] = None,
    fact: Annotated[list[str] | None, typer.Option("--fact", help="KEY=VALUE, such as os_family=Debian.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="The operator's OpenSSH key that signs the run.")] = None,
    mode: Annotated[str, typer.Option(help=f"One of {', '.join(MODES)}.")] = "ansible",
    sls: Annotated[str | None, typer.Option(help="Which SLS of the tree, separated by commas.")] = None,
    var: Annotated[list[str] | None, typer.Option("--var", help="NAME=VALUE; the value is YAML.")] = None,
    secret: Annotated[list[str] | None, typer.Option("--secret", help="NAME=VALUE that is never shown.")] = None,
    git: Annotated[list[str] | None, typer.Option("--git", help="Take the states from this repository.")] = None,
    environment: Annotated[str, typer.Option("--env", help="With --git: the branch or tag.")] = "main",
    test: Annotated[bool, typer.Option("--test", help="A dry run: say what would change.")] = False,
    parallel: Annotated[int, typer.Option(help="At most so many states at a time on a server; 0 for no limit.")] = 0,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """Bring servers into a state, and watch it happen. Ctrl-C leaves it running; see: mesh runs RUN."""
    import secrets
    import tempfile
    import time

    from rackwright.cli.mesh_run_view import show
    from rackwright.mesh.run_model import EXPIRES_SECONDS, Request, Targets, digest_of

    home = folder or default_folder()
    if mode not in MODES:
        raise BadRequest(f"{mode!r} is no mode; it is one of {', '.join(MODES)}")
    if key is None:
        raise BadRequest("a run is signed by an operator: name your OpenSSH key with --key")
    chosen = Targets(tuple(split(on)), pairs(label), pairs(fact))
    variables, hidden = _variables(var), _variables(secret)
    cluster = str(control.ask(home, "status")["ca"])
    with tempfile.TemporaryDirectory(prefix="rackwright-run-", dir=home) as scratch:
        packed, named, pins = _packed(tree, sls, git or [], environment)
        now = int(time.time())
        request = Request(
            id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}",
            cluster=cluster,
            created=now,
            expires=now + EXPIRES_SECONDS,
            tree=digest_of(packed),
            targets=chosen,
            sls=named,
            mode=mode,
            test=test,
            parallel=parallel,
            variables={**variables, **hidden},
            secrets=sorted(hidden),
            pins=pins,
        )
        package = write_package(Path(scratch), request, packed, key)
        status = show(control.listen(home, "run", package=str(package)), as_json)
    raise typer.Exit(status)


def write_package(folder: Path, request: "Request", packed: bytes, key: Path) -> Path:
    """What is handed to the agent: the signed request, and where the packed tree lies."""
    from rackwright.mesh import trust

    (folder / "tree").write_bytes(packed)
    content = {"request": request.dump(), "signature": trust.sign(request.dump().encode(), key)}
    package = folder / "package.json"
    package.write_text(json.dumps({**content, "tree": str(folder / "tree")}))
    return package


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
        from rackwright.cli.mesh_run_view import show

        raise typer.Exit(show(control.listen(home, "follow", run=run, cursor=cursor), as_json))
    told = control.ask(home, "runs")
    if as_json:
        print(json.dumps(told))
        return
    from rackwright.cli.mesh_run_view import print_runs

    print_runs(told["runs"])


@plain_errors
def events(
    cursor: Annotated[str, typer.Option(help="Begin after this point; each event has its own.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes.")] = False,
    folder: Folder = None,
) -> None:
    """What happened in the cluster and in its runs, one JSON object a line, each with a cursor to go on from."""
    try:
        for told in control.listen(folder or default_folder(), "events", cursor=cursor, follow=follow):
            if told["event"]["kind"] != "still_here":
                print(json.dumps(told), flush=True)
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
    told = control.ask(home, "module", file=str(file.absolute())) if file else control.ask(home, "modules")
    if as_json:
        print(json.dumps(told))
    elif file:
        print(f"{told['name']} {told['version']}, signed by {told['signer']}, is in the datastore.")
    else:
        print("\n".join(told["modules"]) or "no modules")


@trust_app.command("add")
@plain_errors
def trust_add(
    name: Annotated[str, typer.Argument(help="The operator.")],
    key: Annotated[Path, typer.Argument(help="The public key, such as id_ed25519.pub.")],
    folder: Folder = None,
) -> None:
    """Trust an operator's key on all servers. On the server that holds the CA."""
    told = control.ask(folder or default_folder(), "trust", action="add", name=name, key=key.read_text())
    print(f"{name} is trusted; the list is at version {told['version']}.")


@trust_app.command("remove")
@plain_errors
def trust_remove(name: Annotated[str, typer.Argument(help="The operator.")], folder: Folder = None) -> None:
    """Trust an operator's key no longer. On the server that holds the CA."""
    told = control.ask(folder or default_folder(), "trust", action="remove", name=name)
    print(f"{name} is no longer trusted; the list is at version {told['version']}.")


@trust_app.command("list")
@plain_errors
def trust_list(as_json: AsJson = False, folder: Folder = None) -> None:
    """The keys that this server trusts."""
    told = control.ask(folder or default_folder(), "trust", action="list")
    lines = [f"{name} {key}" for name, key in sorted(told["keys"].items())]
    print(json.dumps(told) if as_json else "\n".join(lines) or "no key is trusted yet: rackwright mesh trust add")


# What goes in


def _packed(
    tree: Path | None, sls: str | None, git: list[str], environment: str
) -> tuple[bytes, list[str] | None, list[dict[str, str]]]:
    """The packed tree, the SLS of it that are meant, and the commits it was taken from."""
    from rackwright.mesh.run_model import pack_tree
    from rackwright.states.refusal import Refused
    from rackwright.states.sources import Repository, SourceRefused, pinned
    from rackwright.states.tree import place

    named = sls.split(",") if sls else None
    try:
        if git:
            with pinned([Repository(url) for url in git], environment) as held:
                pins = [{"url": pin.url, "reference": pin.reference, "commit": pin.commit} for pin in held.pins]
                made, meant = place(held.path / (tree or ""), named)
                return pack_tree(made.root), meant, pins
        if tree is None:
            raise BadRequest("name a tree of states, or a repository with --git URL")
        made, meant = place(tree, named)
        return pack_tree(made.root), meant, []
    except SourceRefused as refused:
        raise BadRequest(str(refused)) from refused
    except Refused as refused:
        raise BadRequest("; ".join(str(problem) for problem in refused.problems)) from refused


def split(given: list[str] | None) -> list[str]:
    return [name for part in given or () for name in part.split(",") if name]


def pairs(given: list[str] | None) -> dict[str, str]:
    pairs = [part.partition("=") for part in given or ()]
    if not all(equals and name for name, equals, _ in pairs):
        raise BadRequest("a label or fact is KEY=VALUE")
    return {name: value for name, _, value in pairs}


def _variables(given: list[str] | None) -> dict[str, Any]:
    from rackwright.states.sls import parse

    return {name: parse(value, f"--var {name}") for name, value in pairs(given).items()}
