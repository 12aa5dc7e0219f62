"""The part of a server on the network that machines boot from.

It has TFTP, the files that boot loaders wait for, the machine interface over plain HTTP, and the hammers that reach
machines from here. Firmware speaks no TLS worth the name, so machines have an address and port of their own, and find
nothing there but what is for them: people's routes are not served on it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import product

import httpx
from fastapi import FastAPI

from rackwright.annealer.installs import Reach
from rackwright.api.app import create_machine_app
from rackwright.api.context import Server
from rackwright.api.http.boot_loaders import BootLoaderMiddleware
from rackwright.api.http.connections import RareWarning
from rackwright.hammers.hammer_choice import HammerChoice
from rackwright.hammers.ports import HammerPorts
from rackwright.hammers.registry import make_hammers
from rackwright.jigs.boot_server import BootTrouble, inspect_no_network, tftp_answers
from rackwright.jigs.ports import InspectBoot
from rackwright.provision.grub import FIRST_SCRIPT_NAME, render_first_grub_script
from rackwright.provision.images import sledgehammer
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.network_boot import check_arguments
from rackwright.provision.router_advertisement import advertising
from rackwright.provision.served_subnets import subnets_file
from rackwright.provision.tftp import Content, serving_tftp
from rackwright.reach.cloud_init import CloudInitDelivery
from rackwright.server.jig_ports import ServerPorts
from rackwright.server.settings import Options

Listen = Callable[[FastAPI, str, int], AbstractAsyncContextManager[str]]


def make_reach(ports: ServerPorts, http: httpx.AsyncClient, options: Options) -> Reach:
    """Return how this server reaches machines with its hammers; the one for simulated machines is only in a lab."""
    hammer_ports = HammerPorts(ports.connections, ports.target, http, options.lab, options.qemu_sockets)
    choice = HammerChoice(make_hammers(hammer_ports))
    delivery = None if has_simulated_machines(options) else CloudInitDelivery(ports.connections, ports.target)
    return Reach(choice.hammer, choice.probe, delivery)


def has_simulated_machines(options: Options) -> bool:
    """Return whether this server's machines are simulated ones, which have no network to be served on."""
    return options.lab and not options.provision_address


def boot_files(shelf: Shelf, host: str, warn: Callable[[str], None]) -> dict[str, Content]:
    """Return what TFTP serves, by name: the loaders, and what GRUB is told of `host`, the machine interface.

    It is called for each packet of a stranger, so `warn` must not say the same thing again and again.
    """
    try:
        files = shelf.find(sledgehammer.NAME).files
    except NoImage as error:
        warn(f"tftp: {error}.")
        return {}
    loaders = {name: files[name].path for name in sledgehammer.LOADERS if name in files}
    return {**loaders, FIRST_SCRIPT_NAME: render_first_grub_script(host).encode()}


def _join_host(address: str, port: int) -> str:
    """Return an address and a port as they stand in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def make_boot_check(shelf: Shelf, options: Options) -> InspectBoot:
    """Return how the noderole of `provisioner-server` on this host checks what machines find when they boot."""
    if not options.provision_address:
        return inspect_no_network

    async def check_boot() -> list[str]:
        try:
            image = shelf.find(sledgehammer.NAME)
        except NoImage as error:
            raise BootTrouble(str(error)) from None
        for address, name in product(options.provision_address, sledgehammer.LOADERS):
            if not await tftp_answers(address, options.tftp_port, name):
                raise BootTrouble(f"TFTP on {address} port {options.tftp_port} does not send {name}. Is it ours?")
        return [f"{name}: {file.size} bytes, sha256 {file.sha256}" for name, file in sorted(image.files.items())]

    return check_boot


@asynccontextmanager
async def serving_machines(server: Server, options: Options, listen: Listen) -> AsyncIterator[None]:
    """Serve machines until the end of the block; nothing is served if no provisioning address is set."""
    async with AsyncExitStack() as stack:
        if options.provision_address:
            check_arguments(options.kernel_arguments)
            warn = RareWarning()
            app = create_machine_app(server)
            app.add_middleware(BootLoaderMiddleware)
            if options.provision_interface is not None:
                advertised = advertising(options.provision_interface, subnets_file(options.home))
                await stack.enter_async_context(advertised)
            for address in options.provision_address:
                files = partial(boot_files, server.shelf, _join_host(address, options.provision_port), warn)
                await stack.enter_async_context(serving_tftp(files, address, options.tftp_port))
                await stack.enter_async_context(listen(app, address, options.provision_port))
        yield
