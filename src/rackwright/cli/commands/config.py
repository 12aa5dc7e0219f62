"""`rackwright config`: the settings of a server, and which server commands go to."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import profile_or_fail
from rackwright.cli.output.exits import Exit, fail
from rackwright.cli.output.printing import prints
from rackwright.shown_urls import shown_url

app = make_app("Settings.")


@app.command()
@prints("name", "value", "source", "description")
def show(config: Annotated[Path | None, typer.Option(help="A settings file, instead of the usual one.")] = None) -> Any:
    """What a server started here would run with, and where each value comes from."""
    from dataclasses import asdict

    from rackwright.domain.errors import RackwrightError
    from rackwright.server.settings import load_settings, show_settings

    try:
        return [asdict(setting) for setting in show_settings(load_settings({}, config))]
    except RackwrightError as error:
        fail(str(error), Exit.USAGE)


@app.command()
@prints()
def client() -> Any:
    """Which server commands go to from here, and as whom."""
    profile = profile_or_fail()
    return {"url": shown_url(profile.url), "token": f"from {profile.source}", "ca": profile.ca}
