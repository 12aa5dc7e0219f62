"""The `rackwright` command: one table of nouns, each loaded only when it is called.

A noun is `module:attribute`, where the attribute is a Typer app or a plain function `main(argv) -> int`. Loading
nothing else keeps `rackwright --help` and the commands that must start fast (`state`) free of what they do not use.
"""

import gc
import os
import sys
from importlib import import_module
from typing import Any

from rackwright.cli.output.terminal import say

NOUNS: dict[str, tuple[str, str]] = {
    "demo": ("rackwright.cli.lab.demo:app", "see it work, on this machine alone"),
    "server": ("rackwright.cli.commands.server:main", "run the server"),
    "login": ("rackwright.cli.commands.login:login_command", "choose a server and say who you are"),
    "logout": ("rackwright.cli.commands.login:logout_command", "forget that"),
    "config": ("rackwright.cli.commands.config:app", "settings, and where each comes from"),
    "top": ("rackwright.cli.commands.top:main", "the whole system on one screen, live"),
    "node": ("rackwright.cli.commands.node:app", "machines"),
    "group": ("rackwright.cli.commands.group:app", "machines that belong together"),
    "key": ("rackwright.cli.commands.key:app", "what machines let the servers in by"),
    "network": ("rackwright.cli.commands.network:app", "networks and addresses"),
    "domain": ("rackwright.cli.commands.domain:app", "under which names nodes are served by DNS"),
    "deployment": ("rackwright.cli.commands.deployment:app", "what people want of their machines"),
    "noderole": ("rackwright.cli.commands.noderole:app", "roles bound to nodes"),
    "anneal": ("rackwright.cli.commands.anneal:app", "the work itself"),
    "run": ("rackwright.cli.commands.run:app", "what was done and is being done, with logs"),
    "event": ("rackwright.cli.commands.event:app", "what happened, and what happens"),
    "hook": ("rackwright.cli.commands.hook:app", "hooks that fail"),
    "barclamp": ("rackwright.cli.commands.barclamp:app", "packages of roles: write, check, import"),
    "role": ("rackwright.cli.commands.catalogue:role", "what can be bound"),
    "attrib": ("rackwright.cli.commands.catalogue:attrib", "values of nodes, noderoles and deployments"),
    "jig": ("rackwright.cli.commands.catalogue:jig", "what does the work"),
    "hammer": ("rackwright.cli.commands.catalogue:hammer", "ways to reach a machine outside the graph"),
    "user": ("rackwright.cli.commands.user:app", "people"),
    "token": ("rackwright.cli.commands.token:app", "tokens for programs"),
    "image": ("rackwright.cli.commands.image:app", "make what machines boot and what is put on their disks"),
    "lab": ("rackwright.cli.lab.lab_commands:app", "virtual machines to try it on"),
    "state": ("rackwright.cli.commands.state:main", "apply, test, show and explain states on this machine"),
    "module": ("rackwright.cli.commands.module:main", "sign and verify extension modules of the state engine"),
    "agent": ("rackwright.cli.mesh.agent:app", "run this server's agent of the mesh"),
    "mesh": ("rackwright.cli.mesh.mesh_commands:app", "make, join and look at a cluster of servers"),
    "completion": ("rackwright.cli.completion:main", "have your shell complete commands and names"),
}
"""noun -> (`module:attribute`, one line for --help)"""

QUICK: dict[tuple[str, str], str] = {("mesh", "run"): "rackwright.cli.mesh.mesh_run:main"}
"""(noun, verb) -> a plain function, called without loading the other verbs of its noun"""

COMPLETE = "_RACKWRIGHT_COMPLETE"
"""Set by a shell that asks what could come next."""


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its status."""
    arguments = sys.argv[1:] if argv is None else argv
    if COMPLETE in os.environ:
        from rackwright.cli.completion import complete

        complete()
        sys.exit(0)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(usage())
        sys.exit(0)
    if arguments[0] in ("-V", "--version", "version"):
        from rackwright import __version__

        say(f"rackwright {__version__}")
        sys.exit(0)
    arguments = _take_url(arguments)
    _load_without_garbage_collection(arguments)
    sys.exit(run(arguments[0], arguments[1:]))


def _take_url(arguments: list[str]) -> list[str]:
    """Return the arguments without `--url URL`, which stands in front of the noun.

    The URL goes into the environment, where commands look for a server in any case.
    """
    option, equals, value = arguments[0].partition("=")
    if option != "--url":
        return arguments
    remaining = arguments[1:] if equals else arguments[2:]
    url = value if equals else "".join(arguments[1:2])
    if not url or not remaining:
        say("rackwright: --url stands before the command: rackwright --url URL NOUN VERB ...", file=sys.stderr)
        sys.exit(2)
    os.environ["RACKWRIGHT_URL"] = url
    return remaining


def _load_without_garbage_collection(arguments: list[str]) -> None:
    """Load the noun's module, and exempt all that is loaded from garbage collection.

    It stays until the end anyway: looking for garbage in it, now and at the end, would only make the start slower.
    """
    if arguments[0] in NOUNS:
        gc.disable()
        if _load_quick(*arguments[:2]) is None:
            load(arguments[0])
        gc.freeze()
        gc.enable()


def usage() -> str:
    width = max((len(noun) for noun in NOUNS), default=0)
    lines = [f"  {noun:<{width}}  {line}" for noun, (_, line) in NOUNS.items()]
    return "\n".join(
        [
            "Usage: rackwright NOUN VERB ...   (rackwright NOUN --help says more)",
            "",
            *lines,
            "",
            "  --url URL  speak to this server",
            "  --version",
        ]
    )


def run(noun: str, arguments: list[str]) -> int:
    """Run a noun with its arguments, and return the exit status."""
    if noun not in NOUNS:
        say(f"rackwright: no command {noun!r}{_suggestion(noun)}. See rackwright --help.", file=sys.stderr)
        return 2
    if quick := _load_quick(noun, *arguments[:1]):
        return int(quick(arguments[1:]))
    command = load(noun)
    if is_function(command):
        return int(command(arguments))
    result = command(args=arguments, prog_name=f"rackwright {noun}", standalone_mode=True)
    return int(result or 0)


def load(noun: str) -> Any:
    """Import a noun's module, and return its Typer app or function."""
    return _import_attribute(NOUNS[noun][0])


def _load_quick(noun: str, verb: str = "") -> Any:
    reference = QUICK.get((noun, verb))
    return _import_attribute(reference) if reference else None


def _import_attribute(reference: str) -> Any:
    module_name, _, attribute = reference.partition(":")
    return getattr(import_module(module_name), attribute)


def is_function(command: Any) -> bool:
    """Return whether a command is a plain function of its arguments, and no Typer app."""
    return getattr(command, "registered_commands", None) is None


def _suggestion(noun: str) -> str:
    from difflib import get_close_matches

    closest = get_close_matches(noun, NOUNS, n=1)
    return f"; did you mean {closest[0]!r}?" if closest else ""
