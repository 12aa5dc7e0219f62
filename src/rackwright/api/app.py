"""The application: its routes, and what stands around all of them."""

from fastapi import FastAPI

from rackwright import __version__
from rackwright.api.auth.authentication import Doorkeeper
from rackwright.api.auth.cookies import OwnCookieOnly
from rackwright.api.auth.limits import Bucket, machine_bucket, source_network
from rackwright.api.context import Server
from rackwright.api.event_feed import Feed
from rackwright.api.http import openapi, problems
from rackwright.api.http.answer_headers import Uncached
from rackwright.api.http.bodies import Bodies
from rackwright.api.http.compression import Compressed
from rackwright.api.http.short_paths import ShortPaths
from rackwright.api.http.trace import Traced
from rackwright.api.routes import (
    addresses,
    anneal,
    attribs,
    catalogue,
    deployment_roles,
    deployments,
    domains,
    events,
    graph,
    groups,
    hook_calls,
    inputs,
    networks,
    node_roles,
    nodes,
    power,
    reach,
    runs,
    snapshots,
    target_systems,
    webhooks,
)
from rackwright.api.routes.machines import boot, machines
from rackwright.api.routes.people import me, sessions, tokens, users
from rackwright.api.routes.service import docs, health, metrics
from rackwright.api.routes.service.health import Readiness
from rackwright.api.routes.service.metrics import Measured, Meters
from rackwright.api.routes.service.ui import add_page

PREFIX = "/api/v2"

MODULES = (
    *(nodes, power, deployments, snapshots, deployment_roles, node_roles, attribs, runs, groups, target_systems),
    *(inputs, addresses, reach),
    *(catalogue, networks, domains, anneal, graph, hook_calls, docs),
    *(sessions, me, users, tokens, events, webhooks),
)


def create_app(server: Server | None) -> FastAPI:
    """The application of a server, for people; None: only to read the description of it and of the machines'.

    What machines use is served to them elsewhere (`create_machine_app`): whoever reaches people's address has no
    business with it. Simulated machines have no other place to go.
    """
    app = FastAPI(
        title="Rackwright",
        version=__version__,
        openapi_url=None,  # they are routes of ours, for people who say who they are
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=openapi.operation_id,
        redirect_slashes=False,
    )
    app.state.server = server
    app.state.public_bucket = Bucket(rate=50, burst=500)
    app.state.counts_as = source_network
    app.state.refusals = Bucket(rate=1, burst=30)
    app.state.meters = Meters()
    app.state.readiness = Readiness()
    if server is not None:
        app.state.machine_bucket = machine_bucket(server.heartbeat)
        app.state.doors = Doorkeeper(server.store, server.policy.sessions)
        app.state.feed = Feed(server.store)
    for_machines = server is None or server.simulates
    # Before people's: to them `/nodes/register` is a node of that name.
    for module in (machines, *MODULES) if for_machines else MODULES:
        app.include_router(module.router, prefix=PREFIX)
    if for_machines:
        app.include_router(boot.router)
    app.include_router(health.router)
    app.include_router(metrics.router)
    add_page(app)
    app.add_middleware(Compressed)
    # Simulated machines are no people, and have much to say.
    app.add_middleware(Bodies, doors=None if for_machines else app.state.doors)
    app.add_middleware(Measured, meters=app.state.meters, prefix=PREFIX)
    app.add_middleware(Uncached)
    app.add_middleware(Traced)
    app.add_middleware(OwnCookieOnly)
    app.add_middleware(ShortPaths)  # the outermost: all others see the long path
    problems.install(app)
    openapi.install(app)
    return app


def create_machine_app(server: Server) -> FastAPI:
    """What is served on the network that machines boot from: their own interface, and nothing for people."""
    app = FastAPI(title="Rackwright", version=__version__, openapi_url=None, redirect_slashes=False)
    app.state.server = server
    app.state.public_bucket = Bucket(rate=50, burst=500)
    app.state.counts_as = str  # each address for itself: the machines of a rack share an IPv6 network
    app.state.refusals = Bucket(rate=1, burst=30)
    app.state.machine_bucket = machine_bucket(server.heartbeat)
    app.include_router(machines.router, prefix=PREFIX)
    app.include_router(boot.router)
    app.get("/healthz", include_in_schema=False)(health.healthz)
    app.add_middleware(Bodies)
    app.add_middleware(Uncached)
    app.add_middleware(Traced)
    app.add_middleware(OwnCookieOnly)
    problems.install(app)
    return app
