"""`rackwright mesh run`: states on many servers at once, watched as they go.

The operator's key signs here, where the operator is; the agent only carries what was signed. Plain argparse and late
imports, as for `state`: it must start in a blink.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackwright.cli.output.terminal import say
from rackwright.mesh import control
from rackwright.mesh.errors import BadRequest, MeshError
from rackwright.mesh.folder import default_folder
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import Targets
from rackwright.mesh.runs.run_request import new_request, sealed, write_package

if TYPE_CHECKING:
    from collections.abc import Iterable

MODES = ("ansible", "justdoit", "genius")
_WELL = b'{"ok": true, '


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except MeshError as problem:
        say(f"rackwright mesh: {problem}", file=sys.stderr)
    except PermissionError as problem:
        say(f"rackwright mesh: {problem.filename} is not yours to use; do this as root", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rackwright mesh run",
        description="Bring servers into a state, and watch it happen. Ctrl-C leaves it running; see: mesh runs RUN.",
    )
    add = parser.add_argument
    add("tree", type=Path, nargs="?", help="a tree of states, or one .sls file")
    add("--on", action="append", metavar="NAME", help="names of servers, with * and ?")
    add("--label", action="append", metavar="KEY=VALUE", help="that a server must have")
    add("--fact", action="append", metavar="KEY=VALUE", help="such as os_family=Debian")
    add("--key", type=Path, help="the operator's OpenSSH key that signs the run")
    add("--mode", default="ansible", help=f"one of {', '.join(MODES)}")
    add("--sls", help="which SLS of the tree, separated by commas")
    add("--var", action="append", metavar="NAME=VALUE", help="a variable; the value is YAML")
    add("--secret", action="append", metavar="NAME=VALUE", help="a variable that is never shown")
    add("--secret-file", type=Path, metavar="FILE", help="the same as YAML, out of sight of others here; - for stdin")
    add("--modules", action="append", metavar="URL", help="a web folder with signed extension modules")
    add("--git", action="append", metavar="URL", help="take the states from this repository")
    add("--env", default="main", help="with --git: the branch or tag (default: main)")
    add("--test", action="store_true", help="a dry run: say what would change")
    add("--parallel", type=int, default=0, metavar="N", help="at most N states at a time on a server; 0 for no limit")
    add("--json", action="store_true", help="print JSON for a script")
    add("--dir", type=Path, help="where this server's identity and settings live")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    home = arguments.dir or default_folder()
    if arguments.mode not in MODES:
        raise BadRequest(f"{arguments.mode!r} is no mode; it is one of {', '.join(MODES)}")
    if arguments.key is None:
        raise BadRequest("a run is signed by an operator: name your OpenSSH key with --key")
    chosen = Targets(tuple(split(arguments.on)), pairs(arguments.label), pairs(arguments.fact))
    variables = _variables(arguments.var)
    hidden = {**_secrets_in(arguments.secret_file), **_variables(arguments.secret)}
    cluster = str(control.ask(home, "status")["ca"])
    with tempfile.TemporaryDirectory(prefix="rackwright-run-", dir=home) as scratch:
        packed, named, pins = _packed(arguments.tree, arguments.sls, arguments.git or [], arguments.env)
        request = new_request(
            cluster,
            packed,
            chosen,
            sls=named,
            mode=arguments.mode,
            test=arguments.test,
            parallel=arguments.parallel,
            variables=variables,
            secrets=sorted(hidden),
            modules=arguments.modules or [],
            pins=pins,
        )
        if hidden:
            published = control.ask(home, "seals", targets=asdict(chosen))["seals"]
            request = sealed(request, hidden, published, (home / "ca.pem").read_bytes())
        package = write_package(Path(scratch), request, packed, arguments.key)
        return show(control.listen_lines(home, "run", package=str(package)), arguments.json)


# What goes in


def _packed(
    tree: Path | None, sls: str | None, git: list[str], environment: str
) -> tuple[bytes, list[str] | None, list[dict[str, str]]]:
    """The packed tree, the SLS of it that are meant, and the commits it was taken from."""
    from rackwright.states.reading.tree import locate_tree
    from rackwright.states.refusal import RunRefused

    named = sls.split(",") if sls else None
    try:
        if git:
            return _from_git(tree, named, git, environment)
        if tree is None:
            raise BadRequest("name a tree of states, or a repository with --git URL")
        made, meant = locate_tree(tree, named)
        return run_model.pack_tree(made.root), meant, []
    except RunRefused as refused:
        raise BadRequest("; ".join(str(problem) for problem in refused.problems)) from refused


def _from_git(
    tree: Path | None, named: list[str] | None, git: list[str], environment: str
) -> tuple[bytes, list[str] | None, list[dict[str, str]]]:
    from rackwright.states.reading.sources import Repository, SourceRefused, pin_states
    from rackwright.states.reading.tree import locate_tree

    try:
        with pin_states([Repository(url) for url in git], environment) as held:
            pins = [{"url": pin.url, "reference": pin.reference, "commit": pin.commit} for pin in held.pins]
            made, meant = locate_tree(held.path / (tree or ""), named)
            return run_model.pack_tree(made.root), meant, pins
    except SourceRefused as refused:
        raise BadRequest(str(refused)) from refused


def _secrets_in(file: Path | None) -> dict[str, Any]:
    """The variables in a file: what is given as an argument can be read by everybody on this server."""
    from rackwright.states.reading.sls import parse_yaml
    from rackwright.states.refusal import RunRefused

    if file is None:
        return {}
    try:
        content = parse_yaml(sys.stdin.read() if str(file) == "-" else file.read_text(), str(file))
    except (OSError, ValueError, RunRefused) as problem:
        raise BadRequest(f"the secrets in {file} cannot be read: {type(problem).__name__}") from problem
    if not isinstance(content, dict):
        raise BadRequest(f"{file} must hold a mapping of variables, as YAML")
    return dict(content)


def split(given: list[str] | None) -> list[str]:
    return [name for part in given or () for name in part.split(",") if name]


def pairs(given: list[str] | None) -> dict[str, str]:
    pairs = [part.partition("=") for part in given or ()]
    if not all(equals and name for name, equals, _ in pairs):
        raise BadRequest("a label or fact is KEY=VALUE")
    return {name: value for name, _, value in pairs}


def _variables(given: list[str] | None) -> dict[str, Any]:
    if not given:
        return {}
    from rackwright.states.reading.sls import parse_yaml

    return {name: parse_yaml(value, f"--var {name}") for name, value in pairs(given).items()}


# What comes out


def show(answers: Iterable[list[bytes]], as_json: bool) -> int:
    """Show a run as it goes on; the exit status: 0 all well, 1 something failed or was lost."""
    ended: dict[str, str] = {}
    try:
        for lines in answers:
            told = [(line, control.read(line)) for line in lines]
            news = [(line, one) for line, one in told if one.get("event", {}).get("kind") != "still_here"]
            ended |= _ended(one for _, one in news)
            if as_json:
                # As they came: whoever reads them gets what the target wrote.
                _print_json(line.replace(_WELL, b"{", 1) for line, _ in news)
            else:
                from rackwright.cli.mesh.mesh_run_view import print_news

                print_news(one for _, one in news)
    except KeyboardInterrupt:
        say("It goes on without you; see: rackwright mesh runs", file=sys.stderr)
        return 130
    return 0 if ended and all(state == "done" for state in ended.values()) else 1


def _ended(news: Iterable[dict[str, Any]]) -> dict[str, str]:
    events = (one["event"] for one in news if "event" in one)
    return {event["target"]: event["state"] for event in events if event["kind"] == "task"}


def _print_json(lines: Iterable[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
    sys.stdout.buffer.flush()
