"""Commands: run one (`run`), run one when something it watches changed (`wait`), or run a script (`script`).

A command is handed to the engine, which waits for hundreds of them at once; nothing here starts a process.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .. import shelltext
from ..module import Argument, Arguments, Check, Command, Context, Finished, Result, StateError, StateFunction
from ..options import DEFAULT_SHELL, merge_environment
from ..shelltext import WORDS, display_text, environment_of

_COMMAND = Argument(
    "name", "str", "The command. Outputs of other states in it are values, never shell text.", read_by=shelltext.SHELL
)
_COMMON = (
    Argument("cwd", "str", "The directory to run in; the home directory if not given."),
    Argument("runas", "str", "The user to run as."),
    Argument("shell", "str", "The shell that reads the command.", default=DEFAULT_SHELL),
    Argument("env", "dict", "Environment variables to add; null or false takes one out."),
    Argument("prepend_path", "str", "A directory to put in front of PATH."),
    Argument("umask", "mode", "The umask to run with."),
    Argument("stdin", "str", "Text for standard input."),
    Argument("timeout", "float", "Seconds after which the command is killed."),
    Argument("ignore_timeout", "bool", "A command that had to be killed is well too.", default=False),
    Argument(
        "stateful",
        "any",
        "The last line of output says what changed: `changed=yes comment='...'`, or JSON.",
        default=False,
    ),
    Argument("hide_output", "bool", "Keep the output out of the results.", default=False),
    Argument("success_retcodes", "list", "Exit codes besides 0 that mean success.", default=[]),
    Argument("success_stdout", "list", "Lines of standard output that mean success.", default=[]),
    Argument("success_stderr", "list", "Lines of standard error that mean success.", default=[]),
    Argument("output_loglevel", "str", "Accepted for Salt's sake; there is no log to set a level for."),
)


def _check(arguments: Arguments, context: Context) -> Check:
    if not context.test and arguments["cwd"] and not os.path.isdir(arguments["cwd"]):
        raise StateError(f'Desired working directory "{arguments["cwd"]}" is not available')
    name = display_text(arguments["name"])
    return Check({"cmd": name}, f'Command "{name}" would have been executed')


def _check_wait(arguments: Arguments, context: Context) -> Check:
    return Check({}, "")


def _make_command(arguments: Arguments, argv: Tuple[str, ...], stdin: Optional[bytes] = None) -> Command:
    env: Dict[str, Any] = {**(arguments["env"] or {}), **environment_of(arguments["name"])}
    if arguments["prepend_path"]:
        env["PATH"] = f"{arguments['prepend_path']}:{env.get('PATH') or os.environ.get('PATH', os.defpath)}"
    argument_stdin = arguments["stdin"].encode() if arguments["stdin"] else b""
    return Command(
        argv,
        merge_environment(env),
        arguments["cwd"],
        arguments["runas"],
        int(arguments["umask"], 8) if arguments["umask"] else None,
        argument_stdin if stdin is None else stdin,
        arguments["timeout"],
    )


def _run(arguments: Arguments, check: Check, context: Context) -> Command:
    return _make_command(arguments, (arguments["shell"], "-c", arguments["name"]))


def _run_on_change(arguments: Arguments, context: Context) -> Command:
    return _run(arguments, _check(arguments, context), context)


def _settle(arguments: Arguments, finished: Finished) -> Result:
    if not finished.pid:
        return Result(False, {}, finished.stderr)
    out, err = finished.stdout.rstrip(), finished.stderr.rstrip()
    code = 0 if _succeeded(arguments, finished.status, out, err) else finished.status
    shown_out, shown_err = ("", "") if arguments["hide_output"] else (out, err)
    changes = {"pid": finished.pid, "retcode": code, "stdout": shown_out, "stderr": shown_err}
    if finished.timed_out:
        comment = f'Command "{display_text(arguments["name"])}" was killed after {arguments["timeout"]:g} seconds'
        return Result(arguments["ignore_timeout"], changes, comment, dict(changes))
    if arguments["stateful"]:
        return _settle_stateful(changes, code == 0)
    return Result(code == 0, changes, f'Command "{display_text(arguments["name"])}" run', dict(changes))


def _succeeded(arguments: Arguments, status: int, out: str, err: str) -> bool:
    if status == 0 or status in arguments["success_retcodes"]:
        return True
    return any(line in arguments["success_stdout"] for line in out.splitlines()) or any(
        line in arguments["success_stderr"] for line in err.splitlines()
    )


def _settle_stateful(changes: Dict[str, Any], ok: bool) -> Result:
    """Return the result of a stateful command, whose own output says whether it changed anything."""
    out = changes["stdout"]
    if not out:
        return Result(ok, {}, changes["stderr"], changes)
    report = _parse_report(out)
    if report is None:
        problem = "Failed parsing script output! Stdout must be JSON or a line of name=value pairs."
        return Result(False, changes, problem, changes)
    comment = str(report.pop("comment", ""))
    if str(report.get("changed", "no")).lower() not in ("true", "yes", "1"):
        return Result(ok, {}, comment, changes)
    earlier_output = out.rpartition("\n")[0] if not out.lstrip().startswith("{") else ""
    return Result(ok, {**changes, **report, "stdout": earlier_output}, comment, changes)


def _parse_report(out: str) -> Optional[Dict[str, Any]]:
    try:
        report = json.loads(out)
    except ValueError:
        try:
            pairs = [item.split("=") for item in shlex.split(out.rstrip().rpartition("\n")[2])]
            return {key: value for [key, value] in pairs}
        except ValueError:
            return None
    return report if isinstance(report, dict) else None


# Scripts

_RUN_FROM_STDIN = 'f=$(mktemp) && cat > "$f" && chmod 700 "$f" && { "$f" "$@" < /dev/null; s=$?; rm -f "$f"; exit $s; }'
"""Shell command that runs a script from standard input as another user, who may not be able to read the tree."""


def _script_source(arguments: Arguments, context: Context) -> Tuple[Path, List[str]]:
    words = shlex.split(arguments["name"])
    source = arguments["source"] or (words[0] if words else "")
    extra = shlex.split(arguments["args"]) if arguments["args"] else words[1:]
    if source.startswith("salt://"):
        source = source[len("salt://") :]
    path = Path(source) if source.startswith("/") else context.root / source
    if not path.is_file():
        raise StateError(f"there is no script {source!r} in the state tree")
    return path, extra


def _check_script(arguments: Arguments, context: Context) -> Check:
    _script_source(arguments, context)
    check = _check(arguments, context)
    return Check(check.changes, f"Command '{arguments['name']}' would have been executed")


def _script(arguments: Arguments, check: Check, context: Context) -> Command:
    path, extra = _script_source(arguments, context)
    text = path.read_bytes()
    if arguments["runas"]:
        return _make_command(arguments, (DEFAULT_SHELL, "-c", _RUN_FROM_STDIN, str(path), *extra), text)
    first = text.split(b"\n", 1)[0]
    interpreter = shlex.split(first[2:].decode("utf-8", "replace")) if first.startswith(b"#!") else [arguments["shell"]]
    return _make_command(arguments, (*interpreter, str(path), *extra))


def _script_on_change(arguments: Arguments, context: Context) -> Command:
    return _script(arguments, _check_script(arguments, context), context)


def _settle_script(arguments: Arguments, finished: Finished) -> Result:
    result = _settle(arguments, finished)
    if result.comment == f'Command "{arguments["name"]}" run':
        return Result(result.ok, result.changes, f"Command '{arguments['name']}' run", result.outputs)
    return result


_SCRIPT = (
    Argument("name", "str", "The script, and its arguments unless `args` has them.", read_by=WORDS),
    Argument(
        "source", "str", "The script: a path in the state tree (salt://... too) or an absolute one. Default: the name."
    ),
    Argument("args", "str", "Arguments for the script, as a shell would read them.", read_by=WORDS),
)

FUNCTIONS = (
    StateFunction(
        "run",
        """Run a command.

        It runs each time, unless `unless`, `onlyif`, `creates` or a requisite keeps it from running. Its `stdout`,
        `stderr`, `retcode` and `pid` are its changes, and there for others as `${ID.stdout}`.""",
        (_COMMAND, *_COMMON),
        _check,
        _run,
        _run_on_change,
        settle=_settle,
        inline=True,
    ),
    StateFunction(
        "wait",
        "Run a command only when something it watches (or listens to) has changed.",
        (_COMMAND, *_COMMON),
        _check_wait,
        _run,
        _run_on_change,
        settle=_settle,
        inline=True,
    ),
    StateFunction(
        "script",
        "Run a script of the state tree.",
        (*_COMMON, *_SCRIPT),
        _check_script,
        _script,
        _script_on_change,
        settle=_settle_script,
        inline=True,
    ),
    StateFunction(
        "wait_script",
        "Run a script of the state tree only when something it watches has changed.",
        (*_COMMON, *_SCRIPT),
        _check_wait,
        _script,
        _script_on_change,
        settle=_settle_script,
        inline=True,
    ),
)
