"""`rackwright image`: the images that machines boot and that are put on their disks."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.exits import Exit, confirm, fail, require_person
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say
from rackwright.cli.shared import Yes
from rackwright.domain.architectures import Architecture, build_command
from rackwright.home import default_home
from rackwright.provision.images.disk_space import show_size
from rackwright.provision.images.importing.sources import import_image
from rackwright.provision.images.manifest import Image
from rackwright.provision.images.packages import BuildFailed, Source, say_to_stderr
from rackwright.provision.images.root_images import Sign
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.signatures import BadSignature, make_signature, read_signature_file
from rackwright.provision.images.sledgehammer import build as build_sledgehammer
from rackwright.provision.images.sledgehammer_parts import SUITE, Kernel, Parts
from rackwright.provision.images.summary import list_files, summarize_images
from rackwright.provision.images.systems import OPTIONAL, SYSTEMS, Choice
from rackwright.provision.images.systems import build as build_system

app = make_app()

SLEDGEHAMMER = Architecture.AMD64.sledgehammer
Home = Annotated[Path | None, typer.Option(envvar="RACKWRIGHT_HOME", help="Where the server keeps its data.")]
Config = Annotated[Path | None, typer.Option(help="The server's settings file, if it is not in its home.")]
Name = Annotated[str, typer.Argument(help="Name of an image.")]
SignWith = Annotated[
    Path | None, typer.Option("--sign-with", metavar="FILE", help="Sign it with this secret key of minisign.")
]
Signature = Annotated[
    Path | None, typer.Option("--signature", metavar="FILE", help="The signature of its statement, made elsewhere.")
]


@app.command()
def build(
    name: Annotated[str, typer.Argument(help=f"{SLEDGEHAMMER}, or one of {', '.join(SYSTEMS)}.")],
    mirror: Annotated[str | None, typer.Option(help="Where packages come from; else as for this host.")] = None,
    kernel: Annotated[Kernel, typer.Option(help="cloud is smaller, for virtual machines.")] = Kernel.GENERIC,
    architecture: Annotated[
        Architecture, typer.Option(help=f"The machines that {SLEDGEHAMMER} is for. Systems are for amd64 alone.")
    ] = Architecture.AMD64,
    package: Annotated[list[str] | None, typer.Option(help="A package to add; may be repeated.")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help=f"A package to leave out; may be repeated: {', '.join(OPTIONAL)}.")
    ] = None,
    sign_with: SignWith = None,
    home: Home = None,
    config: Config = None,
) -> None:
    """Make an image and put it on the shelf, in place of the one that was there."""
    is_sledgehammer = name == SLEDGEHAMMER
    if is_sledgehammer and (package or without):
        fail(
            f"{SLEDGEHAMMER} has just the packages that it needs: --package and --without are for systems.", Exit.USAGE
        )
    if not (is_sledgehammer or architecture.is_installed):
        fail(
            f"Nothing is installed on {architecture} machines yet: they are discovered, by the image that"
            f" {build_command(architecture.sledgehammer)} makes.",
            Exit.USAGE,
        )
    with _failures_end_command():
        shelf = _open_shelf(home, config)
        sign = _make_sign(sign_with, None)
        if is_sledgehammer:
            build_sledgehammer(shelf, Source(SUITE, mirror), Parts(kernel, architecture), say_to_stderr, sign)
        else:
            choice = Choice(kernel, tuple(package or ()), tuple(without or ()))
            build_system(shelf, name, mirror, choice, say_to_stderr, sign=sign)


@app.command("import")
def import_one(
    name: Annotated[str, typer.Argument(help="The name that it gets here.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|REF",
            help="A qcow2 or raw disk image, a tar archive of a root file system, or an OCI image: oci:DIR:TAG,"
            " oci-archive:FILE, docker-archive:FILE, docker://HOST/NAME:TAG.",
        ),
    ],
    sha256: Annotated[str | None, typer.Option(help="Its digest; another is refused.")] = None,
    signature: Signature = None,
    sign_with: SignWith = None,
    home: Home = None,
    config: Config = None,
) -> None:
    """Take over an image that was made elsewhere, in place of the one of that name."""
    with _failures_end_command():
        sign = _make_sign(sign_with, signature)
        import_image(_open_shelf(home, config), name, source, say_to_stderr, sha256=sha256, sign=sign)


@app.command()
def sign(
    name: Name, sign_with: SignWith = None, signature: Signature = None, home: Home = None, config: Config = None
) -> None:
    """Sign an image that is there: with a secret key, or by a signature that was made elsewhere."""
    with _failures_end_command():
        make = _make_sign(sign_with, signature)
        if make is None:
            fail("Say how: --sign-with FILE or --signature FILE.", Exit.USAGE)
        shelf = _open_shelf(home, config)
        image = shelf.find(name)
        shelf.sign(image, make(image))
    say(f"{name} is signed.")


@app.command()
def statement(name: Name, home: Home = None) -> None:
    """Print what a signature of an image signs, to sign it where the key is: minisign -S -m FILE"""
    with _failures_end_command():
        sys.stdout.write(_open_shelf(home, None).find(name).statement.decode())


@app.command("list")
@prints(
    *("name", "system", "architecture", "kernel", "size", "own", "shared", "made", "signed", "nodes"),
    empty="No images.",
    for_people=lambda images: [_for_people(image) for image in images],
)
def list_images(home: Home = None, config: Config = None) -> Any:
    """What is on the shelf, and how many nodes use it."""
    with _failures_end_command():
        users = _read_users(home)
        return [_with_users(asdict(summary), users) for summary in summarize_images(_open_shelf(home, config))]


@app.command()
@prints(for_people=lambda image: _for_people(image, counted=False))
def show(name: Name, home: Home = None, config: Config = None) -> Any:
    """One image: its files, what it was made from, and which nodes use it."""
    with _failures_end_command():
        shelf = _open_shelf(home, config)
        image = shelf.find(name)
        [summary] = [summary for summary in summarize_images(shelf) if summary.name == name]
        return _with_users({**asdict(summary), "files": list_files(image)}, _read_users(home))


@app.command()
def delete(
    name: Name,
    force: Annotated[bool, typer.Option(help="Also if nodes use it, or nobody knows whether any do.")] = False,
    yes: Yes = False,
    home: Home = None,
) -> None:
    """Remove an image, and free what no other image has of it."""
    require_person(f"Remove image {name}?", yes)
    with _failures_end_command():
        shelf = _open_shelf(home, None)
        shelf.find(name)
        users = _read_users(home)
        if users is None and not force:
            fail(
                "The server of this home does not answer, so nobody knows which nodes use it. Start the server, or"
                " repeat with --force.",
                Exit.UNREACHABLE,
            )
        using = (users or {}).get(name, [])
        if using and not force:
            nodes = ", ".join(f"{user['node']} ({user['use']})" for user in using[:10])
            fail(f"{len(using)} nodes use {name}: {nodes}. Remove it all the same with --force.", Exit.CONFLICT)
        confirm(f"Remove image {name}?", yes)
        say(f"{show_size(shelf.delete(name))} are free again.")


def _open_shelf(home: Path | None, config: Path | None) -> Shelf:
    """Return the shelf of a home, with the keys that the server's settings have."""
    from rackwright.domain.errors import RackwrightError
    from rackwright.server.settings import load_settings

    try:
        options = load_settings({} if home is None else {"home": home}, config).options
    except RackwrightError as error:
        fail(str(error), Exit.USAGE)
    return Shelf(options.home, options.image_signing_keys)


def _make_sign(secret_key: Path | None, signature: Path | None) -> Sign | None:
    """Return how an image gets its signature; None: it gets none."""
    if secret_key is not None and signature is not None:
        fail("--sign-with makes a signature, --signature is one: give one of the two.", Exit.USAGE)
    if signature is not None:
        try:
            text = read_signature_file(signature)
        except BuildFailed as error:
            fail(str(error), Exit.USAGE)
        return lambda _: text
    if secret_key is None:
        return None

    def sign_image(image: Image) -> str:
        return make_signature(image.statement, secret_key, image.name)

    return sign_image


def _read_users(home: Path | None) -> dict[str, list[dict[str, str]]] | None:
    """Return the nodes that use images, as the server of this home says; None: it does not run, or does not answer."""
    from rackwright.cli.profile import NoServer, current_profile
    from rackwright.client.blocking import ApiClient
    from rackwright.client.calls import ANSWER_SECONDS, ONCE
    from rackwright.client.errors import ApiError
    from rackwright.server.running_servers import servers_of_home

    chosen = home or default_home()
    servers = servers_of_home(chosen)
    if not servers:
        return None
    try:
        profile = current_profile({"RACKWRIGHT_HOME": str(chosen), "RACKWRIGHT_URL": servers[0].url})
        with ApiClient(profile, ANSWER_SECONDS, ONCE) as api:
            return {image["name"]: image["nodes"] for image in api.get("/images")}
    except (NoServer, ApiError):
        return None


def _with_users(image: dict[str, Any], users: dict[str, list[dict[str, str]]] | None) -> dict[str, Any]:
    return {**image, "nodes": None if users is None else users.get(image["name"], [])}


def _for_people(image: dict[str, Any], *, counted: bool = True) -> dict[str, Any]:
    """Return an image with sizes and nodes in words."""
    about = image["about"]
    nodes = image["nodes"]
    shown = {
        **image,
        **{field: show_size(image[field]) for field in ("size", "own", "shared")},
        "system": about.get("system", about.get("suite", "")),
        "architecture": about.get("architecture", Architecture.AMD64.value),
        "kernel": about.get("kernel", ""),
        "made": about.get("made", ""),
    }
    if nodes is None:
        return {**shown, "nodes": "not known: the server does not run"}
    names = [f"{user['node']} ({user['use']})" for user in nodes]
    return {**shown, "nodes": str(len(names)) if counted else ", ".join(names)}


@contextmanager
def _failures_end_command() -> Iterator[None]:
    before = {number: signal.signal(number, _end_tidily) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except (BuildFailed, NoImage, BadSignature) as error:
        fail(str(error))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_tidily(number: int, _: object) -> None:
    """End the command as Ctrl-C does, so that it removes what it has on the disk."""
    raise SystemExit(128 + number)
