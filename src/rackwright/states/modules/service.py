"""Services: running, dead, enabled, disabled. A watched change restarts (or reloads) a running one.

The service managers themselves are in `support/services`.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any, List, Optional

from ..module import Argument, Arguments, Check, Context, Resource, Result, StateError, StateFunction
from ..support.plan import Plan, carry_out
from ..support.services import Manager, Status, manager_for

NAME = re.compile(r"[A-Za-z0-9_.@:][A-Za-z0-9_.@:\\-]*")


def check_running(arguments: Arguments, context: Context) -> Check:
    name, manager = str(arguments["name"]), manager_for(arguments)
    status = _read_status(name, manager, context)
    plan = Plan()
    if status.masked:
        if not arguments["unmask"]:
            raise StateError(f"service {name} is masked, so nothing may start it; set unmask: true to allow it")
        plan.step(partial(manager.unmask, name), unmask=True)
    _plan_enabled(plan, name, manager, status, arguments.get("enable"))
    if not status.running:
        plan.step(partial(_start, name, manager, arguments), **{name: True})
    return plan.check(f"The service {name} is already running", f"Service {name} would be started")


def check_dead(arguments: Arguments, context: Context) -> Check:
    name, manager = str(arguments["name"]), manager_for(arguments)
    status = manager.status(name)
    plan = Plan()
    if not status.exists:
        return Check({}, f"There is no service {name}, so it is dead", found=plan)
    _plan_enabled(plan, name, manager, status, arguments.get("enable"))
    if status.running or status.busy:
        plan.step(partial(_stop, name, manager, arguments), **{name: True})
    return plan.check(f"The service {name} is already dead", f"Service {name} would be stopped")


def check_enabled(enabled: bool, arguments: Arguments, context: Context) -> Check:
    name, manager = str(arguments["name"]), manager_for(arguments)
    status = _read_status(name, manager, context, must_exist=enabled)
    plan = Plan()
    if status.masked and enabled:
        raise StateError(f"service {name} is masked; unmask it before it can be enabled")
    if status.exists or enabled:
        _plan_enabled(plan, name, manager, status, enabled, key=name)
    word = "enabled" if enabled else "disabled"
    return plan.check(f"Service {name} is already {word}", f"Service {name} would be {word}")


def _read_status(name: str, manager: Manager, context: Context, must_exist: bool = True) -> Status:
    status = manager.status(name)
    if not status.exists and must_exist and not context.test:
        # In a dry run the package that brings it may not be installed yet.
        raise StateError(f"there is no service {name} for {manager.name} on this machine; install its package first")
    return status


def _plan_enabled(
    plan: Plan, name: str, manager: Manager, status: Status, enabled: Optional[bool], key: str = "enabled"
) -> None:
    if enabled is None or status.enabled is enabled:
        return
    if status.exists and status.enabled is None:
        if enabled:
            raise StateError(
                f"service {name} has nothing to enable for {manager.name}: it has no [Install] or no script"
            )
        return
    plan.step(partial(manager.enable, name, enabled), **{key: enabled})


def _start(name: str, manager: Manager, arguments: Arguments) -> None:
    manager.start(name)
    _wait_for_status(name, manager, arguments, running=True)


def _stop(name: str, manager: Manager, arguments: Arguments) -> None:
    manager.stop(name)
    _wait_for_status(name, manager, arguments, running=False)


def _wait_for_status(name: str, manager: Manager, arguments: Arguments, running: bool) -> None:
    """Wait until a service runs or is dead: a manager may accept a start that fails a moment later."""
    if running and arguments.get("init_delay"):
        time.sleep(float(arguments["init_delay"]))
    deadline = time.monotonic() + float(arguments.get("timeout") or 10)
    while True:
        status = manager.status(name)
        if status.running is running and not status.busy:
            return
        if time.monotonic() > deadline:
            word = "running" if running else "dead"
            raise StateError(f"service {name} was asked to, but is not {word}; look at its log")
        time.sleep(0.05)


def watch_running(arguments: Arguments, context: Context) -> Result:
    name, manager = str(arguments["name"]), manager_for(arguments)
    status = _read_status(name, manager, context)
    if not status.running:
        verb, action = "started", manager.start
    elif arguments["reload"] and not status.can_reload:
        raise StateError(f"service {name} cannot reload; leave reload: out to have it restarted")
    elif arguments["reload"]:
        verb, action = "reloaded", manager.reload
    elif arguments["full_restart"]:
        verb, action = "stopped and started", partial(_stop_and_start, manager)
    else:
        verb, action = "restarted", manager.restart
    action(name)
    _wait_for_status(name, manager, arguments, running=True)
    return Result(True, {name: True}, f"Service {name} was {verb}")


def _stop_and_start(manager: Manager, name: str) -> None:
    manager.stop(name)
    manager.start(name)


def watch_dead(arguments: Arguments, context: Context) -> Result:
    name, manager = str(arguments["name"]), manager_for(arguments)
    if not manager.status(name).running:
        return Result(True, {}, f"Service {name} is already dead")
    _stop(name, manager, arguments)
    return Result(True, {name: True}, f"Service {name} was stopped")


def validate(arguments: Arguments) -> List[str]:
    errors = []
    name = str(arguments["name"])
    if not NAME.fullmatch(name):
        errors.append(f"name: {name!r} is no service name")
    process = arguments.get("command") or arguments.get("pidfile")
    if process and arguments.get("provider") not in (None, "process"):
        errors.append(f"command and pidfile are for a plain process, not for {arguments['provider']}")
    if process and arguments.get("enable") is not None:
        errors.append("enable: a plain process is started by this state only and cannot be enabled")
    if arguments.get("command") is not None and not isinstance(arguments["command"], (str, list)):
        errors.append("command: give one line or a list of words")
    if arguments.get("pidfile") and not str(arguments["pidfile"]).startswith("/"):
        errors.append(f"pidfile: {arguments['pidfile']!r} is no absolute path")
    if arguments.get("reload") and arguments.get("full_restart"):
        errors.append("reload and full_restart are both set; choose one")
    return errors


def resources(arguments: Arguments) -> List[Resource]:
    name = str(arguments["name"])
    return [Resource("service", name[: -len(".service")] if name.endswith(".service") else name)]


SERVICE = Argument("name", help="the service", required=True)
ENABLE = Argument("enable", "bool", help="also have it start at boot (true) or not (false)")
PROVIDER = Argument("provider", help="the service manager; found by itself", choices=("systemd", "sysv", "process"))
PROCESS = (
    Argument("sig", help="text that a process of the service has in its command line, for scripts that cannot say"),
    Argument("timeout", "float", help="seconds to wait for it to start or end", default=10.0),
    PROVIDER,
    Argument("command", "any", help="run this as a plain process, in the foreground; no service manager is used"),
    Argument("pidfile", help="where the process id is kept; /run/rackwright/NAME.pid if not given"),
)
ROOT = Argument("root", help="a folder with another systemd system in it (an image), in place of this machine")


def make_function(name: str, doc: str, arguments: Any, check: Any, **more: Any) -> StateFunction:
    return StateFunction(
        name, doc, (SERVICE, *arguments), check, carry_out, validate=validate, resources=resources, **more
    )


FUNCTIONS = (
    make_function(
        "running",
        "The service runs. When a watched state changed, it is restarted, or reloaded with `reload`.",
        (
            ENABLE,
            Argument("reload", "bool", help="reload instead of restart when a watched state changed", default=False),
            Argument("full_restart", "bool", help="stop and start instead of restart", default=False),
            Argument("init_delay", "float", help="seconds to wait after a start before looking whether it runs"),
            Argument("unmask", "bool", help="unmask it first if it is masked", default=False),
            *PROCESS,
        ),
        check_running,
        watch=watch_running,
    ),
    make_function("dead", "The service does not run.", (ENABLE, *PROCESS), check_dead, watch=watch_dead),
    make_function("enabled", "The service starts at boot.", (PROVIDER, ROOT), partial(check_enabled, True)),
    make_function("disabled", "The service does not start at boot.", (PROVIDER, ROOT), partial(check_enabled, False)),
)
