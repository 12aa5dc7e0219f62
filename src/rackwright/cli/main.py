"""The `rackwright` command: one table of nouns, each loaded only when it is called.

A noun is `module:attribute`, where the attribute is a Typer app or a plain function `main(argv) -> int`. Loading
nothing else keeps `rackwright --help` and the commands that must start fast (`state`) free of what they do not use.
"""

import sys
from importlib import import_module

NOUNS: dict[str, tuple[str, str]] = {
    "server": ("rackwright.cli.server:main", "run the server"),
    "demo": ("rackwright.cli.demo:app", "see it work, on this machine alone"),
    "node": ("rackwright.cli.node:app", "machines"),
    "deployment": ("rackwright.cli.deployment:app", "what people want of them"),
    "noderole": ("rackwright.cli.noderole:app", "roles bound to nodes"),
    "anneal": ("rackwright.cli.anneal:app", "the work itself"),
    "power": ("rackwright.cli.power:app", "switch machines"),
    "image": ("rackwright.cli.image:app", "make what machines boot and what is put on their disks"),
    "lab": ("rackwright.cli.lab:app", "virtual machines to try it on"),
    "module": ("rackwright.cli.module:main", "sign and verify extension modules of the state engine"),
    "state": ("rackwright.cli.state:main", "apply, test, show and explain states on this machine"),
    "agent": ("rackwright.cli.agent:app", "run this server's agent of the mesh"),
    "mesh": ("rackwright.cli.mesh:app", "make, join and look at a cluster of servers"),
}
"""noun -> (where it lives, one line for --help)"""


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        sys.exit(0)
    if arguments[0] in ("-V", "--version", "version"):
        from rackwright import __version__

        print(f"rackwright {__version__}")
        sys.exit(0)
    sys.exit(run(arguments[0], arguments[1:]))


def usage() -> str:
    width = max((len(noun) for noun in NOUNS), default=0)
    lines = [f"  {noun:<{width}}  {line}" for noun, (_, line) in NOUNS.items()]
    return "\n".join(
        ["Usage: rackwright NOUN VERB ...   (rackwright NOUN --help says more)", "", *lines, "", "  --version"]
    )


def run(noun: str, arguments: list[str]) -> int:
    if noun not in NOUNS:
        print(f"rackwright: no command {noun!r}{_nearest(noun)}. See rackwright --help.", file=sys.stderr)
        return 2
    module_name, _, attribute = NOUNS[noun][0].partition(":")
    command = getattr(import_module(module_name), attribute)
    if callable(command) and getattr(command, "registered_commands", None) is None:
        return int(command(arguments))
    result = command(args=arguments, prog_name=f"rackwright {noun}", standalone_mode=True)
    return int(result or 0)


def _nearest(noun: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(noun, NOUNS, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
