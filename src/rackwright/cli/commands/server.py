"""`rackwright server`: run the server."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.terminal import say


def main(argv: list[str]) -> int:
    """Run the server until it is told to stop."""
    app = make_app(no_args_is_help=False)
    app.command()(server)
    return int(app(args=argv, prog_name="rackwright server", standalone_mode=False) or 0)


def server(
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML); a flag wins over it.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    home: Annotated[Path | None, typer.Option(help="Where it keeps its data.")] = None,
    database_url: Annotated[
        str | None, typer.Option(help="A PostgreSQL of yours, instead of the embedded one.")
    ] = None,
    rotate_key: Annotated[
        bool | None,
        typer.Option("--rotate-key", help="Seal all secrets under a new key first. Stop all other servers before."),
    ] = None,
    tls: Annotated[bool | None, typer.Option(help="HTTPS, with a certificate made here unless one is given.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file of your certificate and its chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    tls_names: Annotated[
        list[str] | None, typer.Option("--tls-name", help="One more name or address for a self-made certificate.")
    ] = None,
    insecure_http: Annotated[
        bool | None, typer.Option("--insecure-http", help="Plain HTTP on other addresses than loopback too.")
    ] = None,
    test_barclamp: Annotated[
        bool | None, typer.Option("--test-barclamp", help="Also import the barclamp that tries every flag.")
    ] = None,
    lab: Annotated[
        bool | None, typer.Option("--lab", help="For simulated machines: a workload, and their interface here.")
    ] = None,
    heartbeat: Annotated[float | None, typer.Option(help="Seconds between the heartbeats of machines.")] = None,
    lease: Annotated[
        float | None, typer.Option(help="Seconds after which the work of a dead server is taken over.")
    ] = None,
    tick: Annotated[float | None, typer.Option(help="Seconds between two looks at what nobody woke us for.")] = None,
    provision_address: Annotated[
        list[str] | None,
        typer.Option("--provision-address", help="This host's address where machines boot; once for each family."),
    ] = None,
    provision_port: Annotated[int | None, typer.Option(help="Port of the machine interface there, plain HTTP.")] = None,
    provision_interface: Annotated[
        str | None, typer.Option(help="The interface of these addresses, to send IPv6 router advertisements on.")
    ] = None,
    kernel_arguments: Annotated[
        str | None, typer.Option(help="For kernels that machines boot over the network, such as console=ttyS0.")
    ] = None,
    discovered_names: Annotated[
        str | None, typer.Option(help="How new machines are named: {serial}.rack.example; see docs/bare-metal.md.")
    ] = None,
    dhcp_interfaces: Annotated[
        list[str] | None, typer.Option("--dhcp-interface", help="Answer DHCP on this interface, with ISC Kea.")
    ] = None,
    dns_address: Annotated[
        str | None, typer.Option(help="Serve the names of nodes on this address, with Knot.")
    ] = None,
    dns_port: Annotated[int | None, typer.Option(help="Port to serve them on.")] = None,
    mesh_folder: Annotated[
        Path | None, typer.Option(help="Folder of this host's mesh agent: its members show as nodes.")
    ] = None,
    manual: Annotated[
        bool | None, typer.Option("--manual", help="Without annealer: nothing runs but `rackwright anneal step`.")
    ] = None,
) -> int:
    """Run the server. Each option is also RACKWRIGHT_<NAME> in the environment, and a key of the settings file."""
    import asyncio

    from rackwright.cli.output.server_log import log_to_stderr
    from rackwright.domain.errors import RackwrightError
    from rackwright.server.serve import serve
    from rackwright.server.settings import load_settings

    log_to_stderr()
    flags = {name: value for name, value in locals().items() if name in _FLAGS and value not in (None, [])}
    try:
        asyncio.run(serve(load_settings(flags, config).options))
    except RackwrightError as error:
        say(f"rackwright: {error}", file=sys.stderr)
        return 1
    return 0


_FLAGS = frozenset(server.__annotations__) - {"config", "return"}
