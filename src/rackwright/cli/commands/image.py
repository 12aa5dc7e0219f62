"""`rackwright image`: build the images that machines boot and that are put on their disks."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.terminal import say
from rackwright.home import default_home
from rackwright.provision.images.packages import BuildFailed, Source, say_to_stderr
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.sledgehammer import NAME, SUITE, Kernel
from rackwright.provision.images.sledgehammer import build as build_sledgehammer
from rackwright.provision.images.systems import SYSTEMS
from rackwright.provision.images.systems import build as build_system

app = make_app()

Home = Annotated[Path | None, typer.Option(envvar="RACKWRIGHT_HOME", help="Where the server keeps its data.")]


@app.command()
def build(
    name: Annotated[str, typer.Argument(help=f"{NAME}, or one of {', '.join(SYSTEMS)}.")],
    mirror: Annotated[str | None, typer.Option(help="Where packages come from; else as for this host.")] = None,
    kernel: Annotated[Kernel, typer.Option(help="cloud is smaller, for virtual machines.")] = Kernel.GENERIC,
    home: Home = None,
) -> None:
    """Make an image and put it on the shelf, in place of the one that was there."""
    shelf = Shelf(home or default_home())
    try:
        if name == NAME:
            build_sledgehammer(shelf, Source(SUITE, mirror), kernel, say_to_stderr)
        else:
            build_system(shelf, name, mirror, kernel, say_to_stderr)
    except (BuildFailed, NoImage) as error:
        say(error, file=sys.stderr)
        raise typer.Exit(1) from None


@app.command("list")
def list_images(home: Home = None) -> None:
    """What is on the shelf."""
    for image in Shelf(home or default_home()).all():
        about = ", ".join(f"{key} {value}" for key, value in image.about.items())
        say(f"{image.name} ({about})")
        for name, file in sorted(image.files.items()):
            say(f"  {name:<14} {file.size / 1e6:8.1f} MB  sha256 {file.sha256}")
