"""The worker process in which the code of barclamps runs: it loads a `roles.py`, and calls one hook after the other.

Run as `python -m rackwright.barclamps.worker FD PARENT`. It reads requests and writes answers as JSON lines on the
socket FD. Whatever the hooks print goes to the standard output, which the server reads as their log. It imports nothing
of Rackwright but the domain, and dies with the server that started it, the process PARENT.
"""

import importlib.util
import inspect
import json
import os
import resource
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import IO

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.effects import effects_to_json, outcome_to_json, view_from_json
from rackwright.domain.errors import Invalid
from rackwright.domain.hooks import ALIASES, DO_TRANSITION, RoleHooks, find_class_fault, implemented_hooks
from rackwright.parent_death import die_with

ROLES_FILE = "roles.py"
MAX_TRACE = 2000
END_OF_OUTPUT = b"\0"
"""Written to the standard output after each answer: all that was printed before it belongs to that call."""


class Faulty(Exception):
    """The barclamp's code is not what it must be; the message says why."""


def main(fd: int, parent: int) -> None:
    # A server that is killed cannot end this process, and a hook that spins would never notice that the server is gone.
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Line by line, so that the person who watches a run sees what it prints when it prints it.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream
    with socket.socket(fileno=fd) as connection, connection.makefile("rw", encoding="utf-8", newline="\n") as stream:
        serve(stream)


def serve(stream: IO[str]) -> None:
    """Answer requests until the server closes its end."""
    loaded: dict[str, dict[str, RoleHooks]] = {}
    for line in stream:
        request: JsonObject = json.loads(line)
        try:
            answer = json.dumps(respond(loaded, request), allow_nan=False)
        except (Faulty, Invalid) as error:
            answer = json.dumps({"error": str(error)})
        except Exception as error:  # noqa: BLE001  # somebody else's code: whatever it raises is its answer
            answer = json.dumps({"error": _error_text(error), "line": _error_line(error, str(request["path"]))})
        except SystemExit as error:
            answer = json.dumps({"error": f"it called exit({error.code!r})"})
        sys.stdout.flush()
        sys.stderr.flush()
        stream.write(answer + "\n")
        stream.flush()
        os.write(1, END_OF_OUTPUT)


def respond(loaded: dict[str, dict[str, RoleHooks]], request: JsonObject) -> JsonObject:
    """Return the answer to one request: describe a `roles.py`, load it, or call a hook of it.

    `loaded` has the hooks of each folder that was loaded before, by role.
    """
    path = str(request["path"])
    if "roles" in request:
        roles = request["roles"]
        assert isinstance(roles, list)
        return {"hooks": describe_hooks(Path(path), [str(role) for role in roles])}
    if path not in loaded:
        loaded[path] = {hook_class.role: hook_class() for hook_class in hook_classes(load_roles(Path(path)))}
    if "hook" not in request:
        return {}
    role = request["role"]
    hooks = loaded[path].get(str(role))
    if hooks is None:
        raise Faulty(f"{path}/{ROLES_FILE} has no class of role {role!r} any more. Import the barclamp again.")
    view = request["view"]
    assert isinstance(view, dict)
    return {"answer": call_hook(hooks, str(request["hook"]), view)}


def call_hook(hooks: RoleHooks, hook: str, view: JsonObject) -> Json:
    """Call one hook of one role and return its result as JSON."""
    names = [hook, *(alias for alias, name in ALIASES.items() if name == hook)]
    overridden = [name for name in names if getattr(type(hooks), name, None) is not getattr(RoleHooks, name, None)]
    if not overridden:
        raise Faulty(f"Class {type(hooks).__name__} has no {hook} any more. Import its barclamp again.")
    method = getattr(hooks, overridden[0])
    if inspect.iscoroutinefunction(method):
        raise Faulty(f"{type(hooks).__name__}.{overridden[0]} is async; hooks are plain functions.")
    returned = method(view_from_json(hook, view))
    return outcome_to_json(returned) if hook == DO_TRANSITION else list(effects_to_json(returned))


def load_roles(folder: Path) -> ModuleType:
    """Import a barclamp's `roles.py`, under a module name that no other has."""
    file = folder / ROLES_FILE
    spec = importlib.util.spec_from_file_location(f"rackwright_roles_{abs(hash(str(folder)))}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look their module up there
    # No bytecode is written to its folder: the files would belong to the server's user.
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def hook_classes(module: ModuleType) -> list[type[RoleHooks]]:
    """Return the hook classes that the module itself defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, RoleHooks)
        and value.__module__ == module.__name__
        # A base class that other classes of the module share has no role of its own, and is left out.
        and ("role" in vars(value) or not value.__subclasses__())
    ]


def describe_hooks(folder: Path, roles: list[str]) -> JsonObject:
    """Return, for each role that has a class, the hooks that the class implements."""
    hooks: JsonObject = {}
    for hook_class in hook_classes(load_roles(folder)):
        fault = find_class_fault(hook_class, roles)
        if fault is not None:
            raise Faulty(fault)
        role = hook_class.role
        if role in hooks:
            raise Faulty(f"Class {hook_class.__name__} is the second of role {role!r}; a role has one.")
        hooks[role] = [*sorted(implemented_hooks(hook_class))]
    return hooks


def _error_line(error: Exception, path: str) -> int | None:
    """Return the line of `roles.py` where an error was raised; None if it was not raised there."""
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == f"{path}/{ROLES_FILE}"]
    return frames[-1].lineno if frames else None


def _error_text(error: BaseException) -> str:
    """Return the error with its last frames, which the author of a hook needs, but without the frames of this file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    where = "".join(traceback.format_list(frames[-4:]))
    what = "".join(traceback.format_exception_only(error)).strip()
    return f"{what[:MAX_TRACE]}\n{where[-MAX_TRACE:]}".strip()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
