"""`file.append` and `file.replace`: changes within a file that another program or person manages."""

from __future__ import annotations

import os
import re
from typing import Any, List, Union

from ...module import Argument, Arguments, Check, Context, StateError, StateFunction
from ...shelltext import TEMPLATE
from ...support.content import decode, is_url, read_source, refuse_own_source, render, tree_path
from ...support.files import Owner, read_bytes
from ...support.plan import Plan, carry_out
from . import common

FLAGS = {
    "IGNORECASE": re.IGNORECASE,
    "MULTILINE": re.MULTILINE,
    "DOTALL": re.DOTALL,
    "ASCII": re.ASCII,
    "VERBOSE": re.VERBOSE,
}


def check_append(arguments: Arguments, context: Context) -> Check:
    path = common.path_of(arguments)
    current = decode(read_bytes(path) or b"", path)
    text = current
    for chunk in _chunks(arguments, context):
        if not _contains(current, chunk, arguments["ignore_whitespace"]):
            text += ("" if not text or text.endswith("\n") else "\n") + chunk.rstrip("\n") + "\n"
    return _check_edit(path, current, text, "appended to", arguments, context)


def _chunks(arguments: Arguments, context: Context) -> List[str]:
    text: Any = arguments.get("text")
    if arguments.get("source"):
        source = str(arguments["source"])
        if not is_url(source):
            path = os.path.realpath(common.path_of(arguments))
            refuse_own_source(path, tree_path(source, context.root), "it would be appended to itself")
        text = decode(read_source(source, context), source)
    chunks = [str(chunk) for chunk in text] if isinstance(text, list) else [str(text)]
    if arguments.get("template"):
        chunks = [render(chunk, f"text for {arguments['name']}", arguments, context) for chunk in chunks]
    return chunks


def _contains(text: str, chunk: str, ignore_whitespace: bool) -> bool:
    """Return whether the lines of `chunk` are in `text` one after another, as whole lines."""
    chunk_lines = [_squeeze(line, ignore_whitespace) for line in chunk.rstrip("\n").split("\n")]
    text_lines = [_squeeze(line, ignore_whitespace) for line in text.split("\n")]
    return any(
        text_lines[start : start + len(chunk_lines)] == chunk_lines
        for start in range(len(text_lines) - len(chunk_lines) + 1)
    )


def _squeeze(line: str, ignore_whitespace: bool) -> str:
    return " ".join(line.split()) if ignore_whitespace else line


def _check_edit(path: str, current: str, text: str, verb: str, arguments: Arguments, context: Context) -> Check:
    plan = Plan()
    if text != current or (not current and read_bytes(path) is None):
        common.plan_parents(plan, path, arguments)
        plan.changes = common.plan_file(plan, path, text.encode(), Owner(), arguments, context)
    return plan.check(f"File {path} is in the correct state", f"File {path} would be {verb}")


def validate_append(arguments: Arguments) -> List[str]:
    errors = common.path_rules(arguments)
    if (arguments.get("text") is None) == (not arguments.get("source")):
        errors.append("give either text or source")
    return errors


def check_replace(arguments: Arguments, context: Context) -> Check:
    path = common.path_of(arguments)
    content = read_bytes(path)
    if content is None:
        if arguments["ignore_if_missing"]:
            return Check({}, f"File {path} does not exist, and ignore_if_missing is set")
        raise StateError(f"there is no file {path} to replace in; set ignore_if_missing: true if that is fine")
    current = decode(content, path)
    pattern = re.compile(str(arguments["pattern"]), _flags(arguments["flags"]))
    repl = str(arguments["repl"])
    replacement = (lambda match: repl) if arguments["backslash_literal"] else repl
    try:
        text, count = pattern.subn(replacement, current, count=arguments["count"])
    except (re.error, IndexError) as error:
        raise StateError(f"repl {repl!r} does not fit the pattern: {error}") from error
    if count == 0 and (arguments["append_if_not_found"] or arguments["prepend_if_not_found"]):
        text = _add_line(current, arguments)
    return _check_edit(path, current, text, "edited:", arguments, context)


def _add_line(current: str, arguments: Arguments) -> str:
    not_found_content = arguments.get("not_found_content")
    line = (str(arguments["repl"]) if not_found_content is None else str(not_found_content)).rstrip("\n") + "\n"
    if _contains(current, line, False):
        return current
    if arguments["append_if_not_found"]:
        return current + ("" if not current or current.endswith("\n") else "\n") + line
    return line + current


def _flags(names: Any) -> int:
    if isinstance(names, int):
        return names
    value = 0
    for name in _flag_names(names):
        value |= FLAGS[name]
    return value


def _flag_names(names: Union[str, List[str]]) -> List[str]:
    return [str(name).upper() for name in ([names] if isinstance(names, str) else names)]


def validate_replace(arguments: Arguments) -> List[str]:
    errors = common.path_rules(arguments)
    flags = arguments.get("flags")
    unknown = (
        [] if isinstance(flags, int) or flags is None else [name for name in _flag_names(flags) if name not in FLAGS]
    )
    if unknown:
        errors.append(f"flags: no such flag {', '.join(unknown)}; there are {', '.join(FLAGS)}")
    else:
        try:
            re.compile(str(arguments["pattern"]), _flags(flags or 0))
        except re.error as error:
            errors.append(f"pattern: {error} in {arguments['pattern']!r}")
    if arguments.get("append_if_not_found") and arguments.get("prepend_if_not_found"):
        errors.append("append_if_not_found and prepend_if_not_found are both set; choose one")
    return errors


FUNCTIONS = (
    StateFunction(
        "append",
        "Text that stands in the file as whole lines; what is missing is added at its end.",
        (
            common.NAME,
            Argument("text", "any", help="text, or a list of texts that are each looked for", read_by=TEMPLATE),
            Argument("source", help="a file of the state tree with the text"),
            common.TEMPLATE,
            common.CONTEXT,
            common.DEFAULTS,
            Argument("ignore_whitespace", "bool", help="white space does not count when looking", default=True),
            common.MAKEDIRS,
            common.BACKUP,
            common.SHOW_CHANGES,
        ),
        check_append,
        carry_out,
        validate=validate_append,
        resources=common.path_resource,
    ),
    StateFunction(
        "replace",
        "Every match of a regular expression in the file is replaced.",
        (
            common.NAME,
            Argument("pattern", help="a Python regular expression", required=True),
            Argument("repl", help="what to put in its place; \\1 stands for the first group", required=True),
            Argument("count", "int", help="how many matches at most, 0 for all", default=0),
            Argument("flags", "any", help="names of flags (IGNORECASE, MULTILINE, DOTALL ...) or a number", default=8),
            Argument("append_if_not_found", "bool", help="add the text at the end if nothing matched", default=False),
            Argument("prepend_if_not_found", "bool", help="add the text at the top if nothing matched", default=False),
            Argument("not_found_content", help="what to add then, instead of repl"),
            Argument("backslash_literal", "bool", help="take repl as it is, without \\1", default=False),
            Argument("ignore_if_missing", "bool", help="a missing file is no failure", default=False),
            common.BACKUP,
            common.SHOW_CHANGES,
        ),
        check_replace,
        carry_out,
        validate=validate_replace,
        resources=common.path_resource,
    ),
)
