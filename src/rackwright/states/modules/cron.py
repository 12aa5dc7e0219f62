"""Entries of users' crontabs, each marked by an identifier in a comment, so that it is found again after a change."""

from __future__ import annotations

import re
from functools import partial
from typing import List, Optional, Tuple

from ..module import Argument, Arguments, Check, Context, Resource, StateError, StateFunction
from ..shelltext import CRON
from ..support.files import unified_diff
from ..support.plan import Plan, carry_out
from ..support.process import attempt, last_words

MARK = "RACKWRIGHT_CRON_IDENTIFIER:"
MARKED = re.compile(r"^#.*?(?:RACKWRIGHT|SALT)_CRON_IDENTIFIER:(?P<identifier>.*)$")
"""Matches the marks of Salt too: its entries are changed, not doubled."""
SPECIALS = ("@reboot", "@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually", "@midnight")
FIELDS = ("minute", "hour", "daymonth", "month", "dayweek")
FIELD = re.compile(r"[0-9A-Za-z*/,~-]+")


def read_crontab(user: str) -> str:
    code, stdout, stderr = attempt(["crontab", "-u", user, "-l"])
    if code == 0:
        return stdout
    if "no crontab for" in stderr:
        return ""
    raise StateError(f"cannot read the crontab of {user}: {last_words(stderr)}")


def write_crontab(user: str, text: str) -> None:
    """Replace a user's crontab; cron checks the whole table first and keeps the old one if it is wrong."""
    code, _, stderr = attempt(["crontab", "-u", user, "-"], stdin=text)
    if code != 0:
        raise StateError(f"cron does not take the crontab of {user}: {last_words(stderr)}")


def identifier_of(arguments: Arguments) -> str:
    return str(arguments.get("identifier") or arguments["name"])


def wanted_lines(arguments: Arguments) -> List[str]:
    comment = " ".join(str(arguments.get("comment") or "").split())
    mark = f"# {comment} {MARK}{identifier_of(arguments)}" if comment else f"# {MARK}{identifier_of(arguments)}"
    schedule = arguments.get("special") or " ".join(str(arguments[field]) for field in FIELDS)
    entry = f"{schedule} {arguments['name']}"
    return [mark, f"#DISABLED#{entry}" if arguments["commented"] else entry]


def find_entry(lines: List[str], identifier: str, command: Optional[str]) -> Optional[Tuple[int, int]]:
    """Return first and end index of an entry: its mark and its line, or an unmarked line of the same command."""
    for index, line in enumerate(lines):
        marked = MARKED.match(line)
        if marked and marked["identifier"].strip() == identifier:
            return index, min(index + 2, len(lines))
    for index, line in enumerate(lines):
        if command is not None and _command_of_line(line) == command and not (index and MARKED.match(lines[index - 1])):
            return index, index + 1
    return None


def _command_of_line(line: str) -> Optional[str]:
    if line.startswith("@"):
        return line.partition(" ")[2].strip()
    parts = line.split(None, 5)
    return parts[5].strip() if len(parts) == 6 and not line.startswith("#") else None


def check_present(arguments: Arguments, context: Context) -> Check:
    user, name = str(arguments["user"]), str(arguments["name"])
    text = read_crontab(user)
    lines = text.splitlines()
    position = find_entry(lines, identifier_of(arguments), name)
    entry_lines = wanted_lines(arguments)
    changed = (
        [*lines, *entry_lines] if position is None else [*lines[: position[0]], *entry_lines, *lines[position[1] :]]
    )
    return _check_crontab(user, text, changed, f"Cron {name} is present", f"Cron {name} would be set")


def check_absent(arguments: Arguments, context: Context) -> Check:
    user, name = str(arguments["user"]), str(arguments["name"])
    text = read_crontab(user)
    lines = text.splitlines()
    position = find_entry(lines, identifier_of(arguments), name)
    changed = lines if position is None else [*lines[: position[0]], *lines[position[1] :]]
    return _check_crontab(user, text, changed, f"Cron {name} is not present", f"Cron {name} would be removed")


def _check_crontab(user: str, text: str, lines: List[str], already: str, would: str) -> Check:
    plan = Plan()
    new_text = "".join(f"{line}\n" for line in lines)
    if new_text != text and lines != text.splitlines():
        diff = unified_diff(text.encode(), new_text.encode(), f"crontab of {user}")
        plan.step(partial(write_crontab, user, new_text), **{user: diff})
    return plan.check(already, would)


def validate(arguments: Arguments) -> List[str]:
    errors = []
    if "\n" in str(arguments["name"]):
        errors.append("name: a crontab entry is one line; put more into a script")
    if "\n" in identifier_of(arguments):
        errors.append("identifier: give one line")
    for field in FIELDS:
        value = arguments.get(field)
        if value is not None and not FIELD.fullmatch(str(value)):
            errors.append(f"{field}: {value!r} is nothing cron would take")
    if arguments.get("special") and any(str(arguments.get(field) or "*") != "*" for field in FIELDS):
        errors.append(f"special and {', '.join(FIELDS)} exclude each other")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [Resource("crontab", str(arguments["user"]))]


COMMAND = Argument("name", help="the command", required=True, read_by=CRON)
USER = Argument("user", help="whose crontab", default="root")
IDENTIFIER = Argument(
    "identifier", help="marks the entry; the command itself if not given. Needed to change the command"
)

FUNCTIONS = (
    StateFunction(
        "present",
        "The entry is in the user's crontab, at the given time.",
        (
            COMMAND,
            USER,
            *(Argument(field, help=f"{field} of the schedule", default="*") for field in FIELDS),
            Argument("special", help="in place of the five: @daily, @reboot ...", choices=SPECIALS),
            IDENTIFIER,
            Argument("comment", help="a comment above the entry"),
            Argument("commented", "bool", help="keep the entry, but switched off", default=False),
        ),
        check_present,
        carry_out,
        validate=validate,
        resources=resources,
    ),
    StateFunction(
        "absent",
        "The entry is not in the user's crontab.",
        (COMMAND, USER, IDENTIFIER),
        check_absent,
        carry_out,
        validate=validate,
        resources=resources,
    ),
)
