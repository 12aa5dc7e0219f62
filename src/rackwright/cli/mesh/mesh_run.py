"""`rackwright mesh run`: apply states on many servers at once, and show the run as it goes on.

The run is signed here, with the key of the operator; the agent only carries what was signed. Plain argparse and late
imports, as for `state`, because this command must start in a blink.
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
from rackwright.mesh.runs.run_request import new_request, seal_request, write_package

if TYPE_CHECKING:
    from collections.abc import Iterable

MODES = ("ansible", "justdoit", "genius")
_SUCCESS_PREFIX = b'{"ok": true, '
"""The beginning of each line of the agent that tells no error."""


def main(argv: list[str]) -> int:
    """Run `rackwright mesh run` and return its exit status."""
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
    targets = Targets(tuple(split_names(arguments.on)), parse_pairs(arguments.label), parse_pairs(arguments.fact))
    variables = _parse_variables(arguments.var)
    secrets = {**_read_secrets(arguments.secret_file), **_parse_variables(arguments.secret)}
    cluster = str(control.ask(home, "status")["ca"])
    with tempfile.TemporaryDirectory(prefix="rackwright-run-", dir=home) as scratch:
        packed_tree, sls, pins = _pack_tree(arguments.tree, arguments.sls, arguments.git or [], arguments.env)
        request = new_request(
            cluster,
            packed_tree,
            targets,
            sls=sls,
            mode=arguments.mode,
            test=arguments.test,
            parallel=arguments.parallel,
            variables=variables,
            secrets=sorted(secrets),
            modules=arguments.modules or [],
            pins=pins,
        )
        if secrets:
            seals = control.ask(home, "seals", targets=asdict(targets))["seals"]
            request = seal_request(request, secrets, seals, (home / "ca.pem").read_bytes())
        package = write_package(Path(scratch), request, packed_tree, arguments.key)
        return show_run(control.listen_lines(home, "run", package=str(package)), arguments.json)


# The request


def _pack_tree(
    tree: Path | None, sls: str | None, git: list[str], environment: str
) -> tuple[bytes, list[str] | None, list[dict[str, str]]]:
    """Return the packed tree, the SLS of it that are to be run, and the commits that it was taken from."""
    from rackwright.states.reading.tree import locate_tree
    from rackwright.states.refusal import RunRefused

    names = sls.split(",") if sls else None
    try:
        if git:
            return _pack_from_git(tree, names, git, environment)
        if tree is None:
            raise BadRequest("name a tree of states, or a repository with --git URL")
        located, chosen_sls = locate_tree(tree, names)
        return run_model.pack_tree(located.root), chosen_sls, []
    except RunRefused as refused:
        raise BadRequest("; ".join(str(problem) for problem in refused.problems)) from refused


def _pack_from_git(
    tree: Path | None, names: list[str] | None, git: list[str], environment: str
) -> tuple[bytes, list[str] | None, list[dict[str, str]]]:
    from rackwright.states.reading.sources import Repository, SourceRefused, pin_states
    from rackwright.states.reading.tree import locate_tree

    try:
        with pin_states([Repository(url) for url in git], environment) as checkout:
            pins = [{"url": pin.url, "reference": pin.reference, "commit": pin.commit} for pin in checkout.pins]
            located, chosen_sls = locate_tree(checkout.path / (tree or ""), names)
            return run_model.pack_tree(located.root), chosen_sls, pins
    except SourceRefused as refused:
        raise BadRequest(str(refused)) from refused


def _read_secrets(file: Path | None) -> dict[str, Any]:
    """Return the secret variables in a file; arguments, in contrast, can be read by everybody on this server."""
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


def split_names(texts: list[str] | None) -> list[str]:
    """Return the names in texts that hold several, separated by commas."""
    return [name for text in texts or () for name in text.split(",") if name]


def parse_pairs(texts: list[str] | None) -> dict[str, str]:
    """Return the values of texts KEY=VALUE by key; BadRequest for another text."""
    pairs = [text.partition("=") for text in texts or ()]
    if not all(equals and name for name, equals, _ in pairs):
        raise BadRequest("a label or fact is KEY=VALUE")
    return {name: value for name, _, value in pairs}


def _parse_variables(texts: list[str] | None) -> dict[str, Any]:
    if not texts:
        return {}
    from rackwright.states.reading.sls import parse_yaml

    return {name: parse_yaml(value, f"--var {name}") for name, value in parse_pairs(texts).items()}


# The answers


def show_run(answers: Iterable[list[bytes]], as_json: bool) -> int:
    """Show a run as it goes on; return the exit status: 0 all succeeded, 1 something failed or was lost."""
    task_states: dict[str, str] = {}
    try:
        for lines in answers:
            messages = [(line, control.parse_answer(line)) for line in lines]
            news = [(line, message) for line, message in messages if not _is_heartbeat(message)]
            task_states |= _read_task_states(message for _, message in news)
            if as_json:
                # The lines as they came, so that a script gets what the target wrote.
                _print_json(line.replace(_SUCCESS_PREFIX, b"{", 1) for line, _ in news)
            else:
                from rackwright.cli.mesh.mesh_run_view import print_messages

                print_messages(message for _, message in news)
    except KeyboardInterrupt:
        say("It goes on without you; see: rackwright mesh runs", file=sys.stderr)
        return 130
    return 0 if task_states and all(state == "done" for state in task_states.values()) else 1


def _is_heartbeat(message: dict[str, Any]) -> bool:
    return bool(message.get("event", {}).get("kind") == "still_here")


def _read_task_states(messages: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Return the last state of each target's task, by target."""
    events = (message["event"] for message in messages if "event" in message)
    return {event["target"]: event["state"] for event in events if event["kind"] == "task"}


def _print_json(lines: Iterable[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
    sys.stdout.buffer.flush()
