"""rackwright power: switch machines, and say how their BMCs are reached."""

from typing import Annotated

import typer

from rackwright.cli.client import Client

app = typer.Typer(add_completion=False, no_args_is_help=True)

Node = Annotated[str, typer.Argument(help="The node's name.")]


@app.command("set")
def set_bmc(
    node: Node,
    address: Annotated[str, typer.Option(help="Host, or host:port.")],
    username: Annotated[str, typer.Option()] = "",
    password: Annotated[
        str,
        typer.Option(prompt=True, hide_input=True, envvar="RACKWRIGHT_BMC_PASSWORD", help="Asked for"),
    ] = "",
    plain: Annotated[bool, typer.Option(help="Plain HTTP, on a network of its own.")] = False,
    insecure: Annotated[bool, typer.Option(help="Take any certificate.")] = False,
) -> None:
    """Say how a machine's Redfish BMC is reached. The password is kept sealed."""
    body = {"address": address, "username": username, "password": password, "plain": plain, "insecure": insecure}
    Client().call("PUT", f"/nodes/{node}/bmc", body)


@app.command()
def status(node: Node) -> None:
    """Whether a machine is on."""
    print(Client().call("GET", f"/nodes/{node}/power")["power"])


@app.command()
def on(node: Node) -> None:
    """Switch a machine on."""
    Client().call("POST", f"/nodes/{node}/power", {"action": "on"})


@app.command()
def off(node: Node) -> None:
    """Switch a machine off. What runs on it is not asked."""
    Client().call("POST", f"/nodes/{node}/power", {"action": "off"})


@app.command()
def reset(node: Node) -> None:
    """Restart a machine. What runs on it is not asked."""
    Client().call("POST", f"/nodes/{node}/power", {"action": "reset"})
