"""`rackwright key`: the SSH keys by which machines let the servers in."""

from typing import Any

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say

app = make_app("The keys that machines know the servers by.")


@app.command()
def show() -> None:
    """What to put into ~/.ssh/authorized_keys of a machine that is to be added, one line for each server."""
    for server in Client().get("/server_keys")["items"]:
        say(server["key"])


@app.command("list")
@prints("server", "fingerprint")
def list_all() -> Any:
    """The servers and the fingerprints of their keys."""
    return Client().get("/server_keys")["items"]
