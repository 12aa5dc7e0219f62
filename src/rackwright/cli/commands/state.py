"""`rackwright state`: apply, test, show and explain a tree of states on this machine, and the modules' documentation.

Plain argparse and late imports, because this command must start in a blink. Its work is done by `rackwright.states`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackwright.cli.output.terminal import say

if TYPE_CHECKING:
    from rackwright.states.catalogue import Catalogue
    from rackwright.states.combine import State
    from rackwright.states.plan import Plan
    from rackwright.states.running.record import Mask, Record

OK, FAILED, REFUSED = 0, 1, 2
MODES = ("ansible", "justdoit", "genius")


def main(argv: list[str]) -> int:
    """Run `rackwright state` and return its exit status."""
    arguments = _parser().parse_args(argv)
    from rackwright.states.refusal import RunRefused

    try:
        status = _run_from_git(arguments) if getattr(arguments, "git", None) else _run_from_disk(arguments)
    except RunRefused as refused:
        from rackwright.states.running.record import Mask

        mask = Mask(getattr(arguments, "secrets", ()))
        problems = [mask.text(str(problem)) for problem in refused.problems]
        return _print_refusal(problems, getattr(arguments, "json", False))
    except KeyboardInterrupt:
        say("rackwright: interrupted; what was started was ended", file=sys.stderr)
        return 130
    return status


def _run_from_disk(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "path", "") is None:
        from rackwright.states.refusal import refuse

        raise refuse("name a file or a tree of states, or a repository with --git URL")
    status: int = arguments.run(arguments)
    return status


def _run_from_git(arguments: argparse.Namespace) -> int:
    """Run the verb on the states of git repositories, which stay at the same commits during the run."""
    from rackwright.states.reading.sources import Repository, SourceRefused, pin_states
    from rackwright.states.refusal import refuse

    repositories = [Repository(url, signers=arguments.signers) for url in arguments.git]
    try:
        with pin_states(repositories, arguments.env) as checkout:
            if not arguments.json:
                for pin in checkout.pins:
                    signed = f", signed by {pin.signer}" if pin.signer else ""
                    say(f"{pin.url} at {pin.commit[:12]} ({pin.reference}{signed})", file=sys.stderr)
            arguments.path = checkout.path / (arguments.path or "")
            status: int = arguments.run(arguments)
            return status
    except SourceRefused as refused:
        raise refuse(str(refused)) from None


def _print_refusal(problems: list[str], as_json: bool) -> int:
    if as_json:
        say(json.dumps({"errors": problems}))
    else:
        for problem in problems:
            say(problem, file=sys.stderr)
        say("Refused: nothing was run.", file=sys.stderr)
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rackwright state", description="Bring this machine into a state, or say what that would mean."
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    apply = _add_verb(verbs, "apply", "bring the states about", _apply)
    apply.add_argument("--test", action="store_true", help="a dry run: say what would change")
    _add_verb(verbs, "test", "the same as apply --test", _test)
    show = _add_verb(verbs, "show", "print the order of the states, with the reasons", _show)
    show.add_argument("--dot", action="store_true", help="the graph, for Graphviz")
    _add_verb(verbs, "explain", "say what a mode does with the states, and why", _explain)
    doc = verbs.add_parser("doc", help="the documentation of the modules")
    doc.add_argument("what", nargs="?", default="", metavar="MODULE[.FUNCTION]")
    doc.set_defaults(run=_doc)
    return parser


def _add_verb(verbs: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    verb.set_defaults(run=run, test=name == "test", dot=False)
    verb.add_argument("path", type=Path, metavar="FILE|TREE", nargs="?", help="with --git: within the repository")
    verb.add_argument("--git", action="append", metavar="URL", help="take the states from here; may be repeated")
    verb.add_argument("--env", default="main", help="with --git: the environment, a branch or tag (default: main)")
    verb.add_argument(
        "--signers", type=Path, metavar="FILE", help="with --git: use only commits signed by a key of this file"
    )
    verb.add_argument("--mode", choices=MODES, default="ansible")
    verb.add_argument("--json", action="store_true", help="the machine's form")
    verb.add_argument("--sls", help="which SLS of the tree, separated by commas, in place of what top.sls says")
    verb.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="a variable; the value is YAML")
    verb.add_argument(
        "--secret", action="append", default=[], metavar="NAME=VALUE", help="a variable that is never shown"
    )
    verb.add_argument(
        "--secret-file", action="append", default=[], type=Path, metavar="FILE", help="the same as YAML; - for stdin"
    )
    verb.add_argument("--var-file", action="append", default=[], type=Path, metavar="FILE", help="variables, as YAML")
    verb.add_argument("--node", default="", help="the node's name; default: the host's")
    verb.add_argument("--parallel", type=int, default=0, metavar="N", help="at most N states at a time")
    return verb


# Verbs


def _make_plan(arguments: argparse.Namespace) -> Plan:
    """Read the tree and the variables, and return the plan of the states."""
    from rackwright.states.facts import collect_facts
    from rackwright.states.plan import build_plan, collect_secret_texts
    from rackwright.states.reading.tree import locate_tree, merge_variables

    tree, sls = locate_tree(arguments.path, arguments.sls.split(",") if arguments.sls else None)
    variables: dict[str, Any] = {}
    for path in arguments.var_file:
        variables = merge_variables(variables, _read_variables(path))
    for text in arguments.var:
        variables = merge_variables(variables, _parse_variable(text))
    arguments.secrets = set()
    for secret in [*map(_read_variables, arguments.secret_file), *map(_parse_variable, arguments.secret)]:
        arguments.secrets |= collect_secret_texts(list(secret.values()))
        variables = merge_variables(variables, secret)
    planned = build_plan(tree, sls, variables, collect_facts(arguments.node), _tree_catalogue(tree.root))
    planned.secrets |= arguments.secrets
    return planned


def _tree_catalogue(root: Path) -> Catalogue | None:
    """Return a catalogue with the tree's own modules; None if it has none.

    The code that verifies modules is not loaded for a tree without any.
    """
    if not (root / "_modules").is_dir():
        return None
    from rackwright.states.extensions import load_tree_catalogue

    return load_tree_catalogue(root)


def _parse_variable(text: str) -> dict[str, Any]:
    from rackwright.states.reading.sls import parse_yaml
    from rackwright.states.refusal import refuse

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise refuse(f"a variable is NAME=VALUE, not {name!r}")
    return {name: parse_yaml(value, f"--var {name}")}


def _read_variables(path: Path) -> dict[str, Any]:
    from rackwright.states.reading.sls import parse_yaml
    from rackwright.states.refusal import refuse

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        variables = parse_yaml(text, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise refuse(f"cannot read the variables in {path}: {error}") from None
    if not isinstance(variables, dict):
        raise refuse("a file of variables is a mapping", str(path), 1)
    return variables


def _test(arguments: argparse.Namespace) -> int:
    arguments.test = True
    return _apply(arguments)


def _apply(arguments: argparse.Namespace) -> int:
    from rackwright.states.running.execution import PlanExecution, change_to_home_directory

    plan = _make_plan(arguments)
    change_to_home_directory()
    progress = _Progress(len(plan.states), quiet=arguments.json)
    run = PlanExecution(plan, arguments.mode, arguments.test, arguments.parallel, progress.print_event)
    progress.mask = run.report.mask
    report = run.execute()
    if arguments.json:
        say(json.dumps(report.as_json(), default=str))
    else:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in report.summary().items() if count)
        say(f"{counts or 'no states'} in {report.seconds:.2f} s{' (dry run)' if report.test else ''}")
        for state in report.not_run:
            say(f"not run (failhard): {state.qualified_function} {state.id}")
    return FAILED if report.failed else OK


class _Progress:
    """Prints a line for each state as it ends."""

    def __init__(self, total: int, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._done = 0
        self.mask: Mask | None = None

    def print_event(self, kind: str, state: State, detail: Any) -> None:
        """Print an event of the run: a line of a state's log, or its end."""
        if self._quiet or kind == "start":
            return
        if kind == "log":
            self._say(f"    {state.id}: {detail}")
        else:
            self._print_end(detail)

    def _print_end(self, record: Record) -> None:
        self._done += 1
        width = len(str(self._total))
        word = (
            f"would {record.outcome.value.replace('changed', 'change')}"
            if record.result is None
            else record.outcome.value
        )
        self._say(f"[{self._done:>{width}}/{self._total}] {word:<9} {record.function} {record.id}")
        if record.outcome.value in ("failed", "blocked", "skipped") and record.comment:
            self._say(_indented(record.comment))
        for key, value in record.changes.items():
            if value not in ("", None, {}, []) and key not in ("pid", "cmd"):
                shown = value if isinstance(value, str) else json.dumps(value, default=str)
                self._say(_indented(f"{key}: {shown}" if "\n" not in shown else f"{key}:\n{shown}"))

    def _say(self, text: str) -> None:
        say(text if self.mask is None else self.mask.text(text), flush=True)


def _indented(text: str) -> str:
    return "\n".join("      " + line for line in text.splitlines())


def _show(arguments: argparse.Namespace) -> int:
    from rackwright.states import explain

    plan = _make_plan(arguments)
    if arguments.dot:
        say(explain.format_graphviz(plan))
    elif arguments.json:
        say(json.dumps({"states": explain.list_steps(plan)}, default=str))
    else:
        say("\n".join(explain.list_step_lines(plan)))
    return OK


def _explain(arguments: argparse.Namespace) -> int:
    from rackwright.states import explain

    explanation = explain.explain_mode(_make_plan(arguments), arguments.mode)
    as_json = {"mode": arguments.mode, "explanation": explanation}
    say(json.dumps(as_json) if arguments.json else "\n".join(explanation))
    return OK


def _doc(arguments: argparse.Namespace) -> int:
    from rackwright.states.catalogue import Catalogue, format_documentation
    from rackwright.states.refusal import did_you_mean

    catalogue = Catalogue()
    text = format_documentation(catalogue, arguments.what)
    if text is None:
        module, _, function = arguments.what.partition(".")
        functions = catalogue.functions(module)
        known = catalogue.module_names() if functions is None else list(functions)
        suggestion = did_you_mean(module if functions is None else function, known)
        say(f"rackwright: no documentation of {arguments.what!r}{suggestion}", file=sys.stderr)
        return REFUSED
    say(text)
    return OK
