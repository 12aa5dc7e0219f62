"""`rackwright module`: sign, verify and list extension modules. The rules are in `rackwright.states.extensions`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rackwright.cli.output.terminal import say
from rackwright.states import extensions
from rackwright.states.extensions import ExtensionRefused, FolderSource, Loader, VersionHistory


def main(argv: list[str]) -> int:
    """Run `rackwright module` and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except ExtensionRefused as refused:
        say(f"rackwright: {refused}", file=sys.stderr)
        return 2
    except OSError as error:
        say(f"rackwright: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rackwright module", description="Sign and verify extension modules.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    sign = verbs.add_parser("sign", help="write FILE.manifest: version, sha256 and a signature")
    sign.add_argument("file", type=Path, metavar="FILE.py")
    sign.add_argument("--version", required=True, help="higher than any that was given out before")
    sign.add_argument("--key", type=Path, required=True, help="OpenSSH private key, or a public one whose agent signs")
    sign.set_defaults(run=_sign)

    verify = verbs.add_parser("verify", help="say who signed a module and whether this machine would take it")
    verify.add_argument("file", type=Path, metavar="FILE.py")
    _add_trust_options(verify)
    verify.set_defaults(run=_verify)

    show = verbs.add_parser("list", help="the modules of a state tree and whether this machine would take them")
    show.add_argument(
        "tree", type=Path, metavar="TREE", help=f"a state tree; its {extensions.FOLDER} folder is looked at"
    )
    show.add_argument("--json", action="store_true")
    _add_trust_options(show)
    show.set_defaults(run=_list)
    return parser


def _add_trust_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--signers", type=Path, default=extensions.SIGNERS, help="OpenSSH allowed-signers file")
    parser.add_argument(
        "--seen", type=Path, default=extensions.VERSION_HISTORY, help="where the versions seen are remembered"
    )


def _sign(arguments: argparse.Namespace) -> int:
    file: Path = arguments.file
    if file.suffix != ".py":
        raise ExtensionRefused(f"{file} is no Python file")
    manifest = extensions.sign(file.read_bytes(), file.stem, arguments.version, arguments.key)
    Path(f"{file}{extensions.MANIFEST}").write_text(manifest.dump())
    say(f"{manifest.name} {manifest.version} signed: {file}{extensions.MANIFEST}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    file: Path = arguments.file
    bundle = FolderSource(file.parent).fetch(file.stem)
    if bundle is None:
        raise ExtensionRefused(f"there is no module {file}")
    manifest, signer = extensions.verify(bundle, file.stem, arguments.signers)
    VersionHistory(arguments.seen).check(manifest)
    say(f"{manifest.name} {manifest.version}: good, signed by {signer}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    """Print every module and whether it would be taken; status 1 if one of them would be refused."""
    folder = arguments.tree / extensions.FOLDER
    loader = Loader((FolderSource(folder),), arguments.signers, VersionHistory(arguments.seen))
    rows = [_check_module(loader, name) for name in loader.names()]
    if arguments.json:
        say(json.dumps({"modules": rows}))
    elif not rows:
        say(f"no modules in {folder}")
    for row in [] if arguments.json else rows:
        verdict = row["refused"] or f"signed by {row['signer']}"
        say(f"{row['name']:<20} {row['version'] or '-':<10} {verdict}")
    return 1 if any(row["refused"] for row in rows) else 0


def _check_module(loader: Loader, name: str) -> dict[str, str | None]:
    """Return a module's version and signer, and why this machine would refuse it, if it would."""
    row: dict[str, str | None] = {"name": name, "version": None, "signer": None, "refused": None}
    try:
        bundle = loader.find(name)
        assert bundle is not None  # the folder has just listed it
        manifest, row["signer"] = extensions.verify(bundle, name, loader.signers)
        row["version"] = manifest.version
        loader.memory.check(manifest)
    except ExtensionRefused as refused:
        row["refused"] = str(refused)
    return row
