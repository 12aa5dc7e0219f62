"""Kernel parameters: set now, and written down for the next boot."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any, List, Optional

from ..module import Argument, Arguments, Check, Context, Resource, StateError, StateFunction
from ..support.files import Owner, make_folder, missing_parents, read_bytes, write_whole
from ..support.plan import Plan, carry_out

CONFIG = "/etc/sysctl.d/99-rackwright.conf"
NAME = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_:@-]+)+")


def kernel_path(name: str) -> str:
    """Return the file of a parameter.

    A name is `net.ipv4.ip_forward` or, where a part itself has dots (an interface), `net/ipv4/conf/eth0.1/forwarding`.
    """
    first = re.search(r"[./]", name)
    return "/proc/sys/" + (name if first and first.group() == "/" else name.replace(".", "/"))


def normalize(value: Any) -> str:
    """Return a value in one form: the kernel puts tabs between numbers where people put spaces."""
    if isinstance(value, bool):
        return str(int(value))
    return " ".join(str(value).split())


def check(arguments: Arguments, context: Context) -> Check:
    name, value = str(arguments["name"]), normalize(arguments["value"])
    config = str(arguments["config"])
    plan = Plan()
    running = _running_value(name)
    if running is None:
        raise StateError(f"this kernel has no parameter {name} ({kernel_path(name)}); its module may not be loaded")
    if running != value:
        plan.step(partial(_set, name, value), running={"old": running, "new": value})
    text = (read_bytes(config) or b"").decode("utf-8", "replace")
    new_text = set_line(text, name, value)
    if new_text != text:
        plan.step(partial(_write, config, new_text), written={"old": configured_value(text, name), "new": value})
    return plan.check(f"{name} is {value} already", f"{name} would be set to {value}")


def _running_value(name: str) -> Optional[str]:
    try:
        with open(kernel_path(name), encoding="utf-8") as file:
            return normalize(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StateError(f"cannot read {name}: {error.strerror}") from error


def _set(name: str, value: str) -> None:
    try:
        with open(kernel_path(name), "w", encoding="utf-8") as file:
            file.write(value)
    except OSError as error:
        raise StateError(f"the kernel does not take {value!r} for {name}: {error.strerror}") from error


def _write(config: str, text: str) -> None:
    for folder in missing_parents(config):
        make_folder(folder, Owner(mode=0o755))
    write_whole(config, text.encode(), Owner())


def _path_of_line(line: str) -> str:
    """Return the kernel's path of the parameter that a line sets; empty if it sets none."""
    match = re.match(r"\s*(?:-\s*)?([^#;\s=]+)\s*=", line)
    return kernel_path(match.group(1)) if match else ""


def configured_value(text: str, name: str) -> Optional[str]:
    values = [line.partition("=")[2] for line in text.splitlines() if _path_of_line(line) == kernel_path(name)]
    return normalize(values[-1]) if values else None


def set_line(text: str, name: str, value: str) -> str:
    """Return the text of the file with one line for the parameter, where its first line was."""
    if (
        configured_value(text, name) == value
        and sum(_path_of_line(line) == kernel_path(name) for line in text.splitlines()) == 1
    ):
        return text
    lines: List[str] = []
    is_written = False
    for line in text.splitlines():
        if _path_of_line(line) != kernel_path(name):
            lines.append(line)
        elif not is_written:
            lines.append(f"{name} = {value}")
            is_written = True
    if not is_written:
        lines.append(f"{name} = {value}")
    return "\n".join(lines) + "\n"


def validate(arguments: Arguments) -> List[str]:
    errors = []
    name = str(arguments["name"])
    if not NAME.fullmatch(name) or ".." in name:
        errors.append(f"name: {name!r} is no kernel parameter; write it like net.ipv4.ip_forward")
    if "\n" in str(arguments["value"]):
        errors.append("value: give one line")
    if not str(arguments["config"]).startswith("/"):
        errors.append(f"config: {arguments['config']!r} is no absolute path")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    return [
        Resource("sysctl", kernel_path(str(arguments["name"]))),
        Resource("file", os.path.normpath(str(arguments["config"]))),
    ]


FUNCTIONS = (
    StateFunction(
        "present",
        "The kernel parameter has the value, now and after a boot.",
        (
            Argument("name", help="the parameter, like net.ipv4.ip_forward", required=True),
            Argument("value", "any", help="its value", required=True),
            Argument("config", help="the file it is written down in", default=CONFIG),
        ),
        check,
        carry_out,
        validate=validate,
        resources=resources,
        inline=True,
    ),
)
