"""`file.managed`: one file with the content, owner and mode it should have."""

from __future__ import annotations

import os
from typing import List

from ...module import Argument, Arguments, Check, Context, Result, StateError, StateFunction
from ...shelltext import TEMPLATE, WORDS
from ...support.content import first_source, is_url, refuse_own_source, tree_path, wanted_content
from ...support.files import read_bytes, refuse_foreign_links, status
from ...support.plan import Plan, carry_out
from . import common


def validate(arguments: Arguments) -> List[str]:
    errors = common.path_rules(arguments)
    if arguments.get("contents") is not None and arguments.get("source"):
        errors.append("contents and source are both given; leave one out")
    if not isinstance(arguments.get("source"), (str, list, type(None))):
        errors.append("source: give a path or a list of paths")
    if isinstance(arguments.get("contents"), dict):
        errors.append("contents: give text or a list of lines")
    if arguments.get("source_hash") and not arguments.get("source"):
        errors.append("source_hash is given without a source")
    if arguments.get("template") and arguments.get("source") is None and arguments.get("contents") is None:
        errors.append("template is given without source or contents")
    return errors


def check(arguments: Arguments, context: Context) -> Check:
    path = common.path_of(arguments)
    if arguments["follow_symlinks"] and os.path.islink(path):
        refuse_foreign_links(path, last=True)
        path = os.path.realpath(path)
    file_status = status(path)
    if file_status is None and not arguments["create"]:
        return Check({}, f"File {path} does not exist and create is false")
    content = None
    if file_status is None or arguments["replace"]:
        # replace: false manages owner and mode of a file that exists, and its content only once.
        _refuse_to_render_in_place(path, arguments, context)
        current = read_bytes(path) if file_status is not None and arguments.get("source_hash") else None
        content = wanted_content(arguments, context, current)
    if content is None and file_status is None:
        content = b""
    plan = Plan()
    link = os.path.islink(path) and not arguments["follow_symlinks"]
    if link:
        plan.step(lambda: os.unlink(path))
    if file_status is None:
        common.plan_parents(plan, path, arguments)
    if content is not None and arguments.get("check_cmd"):
        _try_out(plan, path, content, str(arguments["check_cmd"]))
    plan.changes = common.plan_file(
        plan, path, content, common.owner_of(arguments, source=_source_path(arguments, context)), arguments, context
    )
    return plan.check(f"File {path} is in the correct state", f"File {path} would be updated")


def _refuse_to_render_in_place(path: str, arguments: Arguments, context: Context) -> None:
    if arguments.get("template") and arguments.get("source"):
        source = _source_path(arguments, context)
        if source:
            refuse_own_source(path, source, "the text would take the place of its template")


def _source_path(arguments: Arguments, context: Context) -> str:
    """Where the source lies on this machine; empty for a URL."""
    source = first_source(arguments["source"], context) if arguments.get("source") else ""
    return tree_path(source, context.root) if source and not is_url(source) else ""


def _try_out(plan: Plan, path: str, content: bytes, command: str) -> None:
    """Plan to run `command NEWFILE` before the new content takes the file's place; a failure leaves the old one."""

    def step() -> None:
        import shlex
        import tempfile

        from ...support.process import attempt, last_words

        with tempfile.NamedTemporaryFile(prefix="rackwright-") as candidate:
            candidate.write(content)
            candidate.flush()
            code, stdout, stderr = attempt([*shlex.split(command), candidate.name])
        if code != 0:
            raise StateError(
                f"check_cmd {command!r} refused the new {path} (status {code}): {last_words(stderr or stdout)}"
            )

    if read_bytes(path) != content:
        plan.step(step)


def apply(arguments: Arguments, file_check: Check, context: Context) -> Result:
    return carry_out(arguments, file_check, context)


FUNCTIONS = (
    StateFunction(
        "managed",
        "A file with the given content, owner and mode. Content comes from `source` (a file of the state tree, of this "
        "machine, or a URL with `source_hash`) or from `contents`; with neither, only owner and mode are managed. "
        "The new file is written aside and renamed, so nothing ever sees half of it.",
        (
            common.NAME,
            Argument(
                "source",
                "any",
                help="path in the state tree (salt:// or plain), absolute path or URL; of a list the first that exists",
            ),
            Argument("source_hash", help="sha256=HEX (or sha384, sha512) the source must have; required for a URL"),
            Argument("contents", "any", help="the content itself: text or a list of lines", read_by=TEMPLATE),
            Argument("contents_newline", "bool", help="end `contents` with a newline", default=True),
            common.USER,
            common.GROUP,
            common.MODE,
            common.TEMPLATE,
            common.CONTEXT,
            common.DEFAULTS,
            common.MAKEDIRS,
            common.DIR_MODE,
            Argument("replace", "bool", help="false leaves the content of a file that exists", default=True),
            Argument("create", "bool", help="false leaves a missing file missing", default=True),
            common.BACKUP,
            common.SHOW_CHANGES,
            Argument("follow_symlinks", "bool", help="manage what a link points to, not the link", default=True),
            Argument(
                "check_cmd",
                help="a command that gets the new file's path and must succeed before it is put in place",
                read_by=WORDS,
            ),
        ),
        check,
        apply,
        validate=validate,
        resources=common.path_resource,
    ),
)
