"""The part of a server on the network that machines boot from.

It has TFTP, the files that boot loaders wait for, the machine interface over plain HTTP, and the hammers that reach
machines from here. Firmware speaks no TLS worth the name, so machines have an address and port of their own, and find
nothing there but what is for them: people's routes are not served on it.
"""

import contextlib
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
from rackwright.domain.architectures import Architecture
from rackwright.hammers.hammer_choice import HammerChoice
from rackwright.hammers.ports import HammerPorts
from rackwright.hammers.registry import make_hammers
from rackwright.jigs.boot_server import BootTrouble, inspect_no_network, tftp_answers
from rackwright.jigs.ports import InspectBoot
from rackwright.provision.grub import FIRST_SCRIPT_NAME, render_first_grub_script
from rackwright.provision.images.manifest import Image
from rackwright.provision.images.shelf import NoImage, Shelf
from rackwright.provision.images.sledgehammer_parts import loaders
from rackwright.provision.network_boot import check_arguments
from rackwright.provision.router_advertisement import advertising
from rackwright.provision.served_subnets import subnets_file
from rackwright.provision.tftp import Content, serving_tftp
from rackwright.rare_warning import RareWarning
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
    """Return what TFTP serves, by name: the loaders of each kind of machine for which there is an image, and what GRUB
    is told of `host`, the machine interface.

    It is called for each packet of a stranger, so `warn` must not say the same thing again and again.
    """
    served: dict[str, Content] = {}
    for architecture, image in _find_images(shelf).items():
        served |= {name: image.files[name].path for name in loaders(architecture) if name in image.files}
    if not served:
        warn(f"tftp: {_explain_missing(shelf, Architecture.AMD64)}")
        return {}
    return {**served, FIRST_SCRIPT_NAME: render_first_grub_script(host).encode()}


def _find_images(shelf: Shelf) -> dict[Architecture, Image]:
    """Return the images that machines boot to be discovered, for those kinds of machine that have one."""
    images = {}
    for architecture in Architecture:
        with contextlib.suppress(NoImage):
            images[architecture] = shelf.find(architecture.sledgehammer)
    return images


def _explain_missing(shelf: Shelf, architecture: Architecture) -> str:
    """Return why machines of one kind find nothing to boot; empty: they do."""
    try:
        shelf.find(architecture.sledgehammer)
    except NoImage as error:
        return f"{architecture} machines find nothing to boot here: {error}."
    return ""


def explain_missing_loader(shelf: Shelf, warn: Callable[[str], None], name: str) -> None:
    """Warn of a loader that a machine asked for and did not get, if no image for such machines was made."""
    for architecture in Architecture:
        if name in loaders(architecture) and (reason := _explain_missing(shelf, architecture)):
            warn(f"A machine asked for {name}. {reason}")


def _join_host(address: str, port: int) -> str:
    """Return an address and a port as they stand in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def make_boot_check(shelf: Shelf, options: Options) -> InspectBoot:
    """Return how the noderole of `provisioner-server` on this host checks what machines find when they boot."""
    if not options.provision_address:
        return inspect_no_network

    async def check_boot() -> list[str]:
        images = _find_images(shelf)
        if not images:
            raise BootTrouble(_explain_missing(shelf, Architecture.AMD64))
        names = [name for architecture in images for name in loaders(architecture)]
        for address, name in product(options.provision_address, names):
            if not await tftp_answers(address, options.tftp_port, name):
                raise BootTrouble(f"TFTP on {address} port {options.tftp_port} does not send {name}. Is it ours?")
        served = [
            f"{image.name}/{name}: {file.size} bytes, sha256 {file.sha256}"
            for image in images.values()
            for name, file in sorted(image.files.items())
        ]
        return [*served, *(_explain_missing(shelf, kind) for kind in Architecture if kind not in images)]

    return check_boot


@asynccontextmanager
async def serving_machines(server: Server, options: Options, listen: Listen) -> AsyncIterator[None]:
    """Serve machines until the end of the block; nothing is served if no provisioning address is set."""
    async with AsyncExitStack() as stack:
        if options.provision_address:
            check_arguments(options.kernel_arguments)
            warn, warn_missing = RareWarning(), RareWarning()
            on_missing = partial(explain_missing_loader, server.shelf, warn_missing)
            app = create_machine_app(server)
            app.add_middleware(BootLoaderMiddleware, on_missing)
            if options.provision_interface is not None:
                advertised = advertising(options.provision_interface, subnets_file(options.home))
                await stack.enter_async_context(advertised)
            for address in options.provision_address:
                files = partial(boot_files, server.shelf, _join_host(address, options.provision_port), warn)
                await stack.enter_async_context(serving_tftp(files, address, options.tftp_port, on_missing))
                await stack.enter_async_context(listen(app, address, options.provision_port))
        yield
