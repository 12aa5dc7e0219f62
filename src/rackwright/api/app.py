"""The application, put together: its routes, and the middleware around all of them."""

from fastapi import FastAPI

from rackwright import __version__
from rackwright.api.auth.authentication import Authenticator
from rackwright.api.auth.cookies import SessionCookieMiddleware
from rackwright.api.auth.limits import Bucket, machine_bucket
from rackwright.api.context import Server
from rackwright.api.event_feed import EventFeed
from rackwright.api.http import openapi, problems
from rackwright.api.http.answer_headers import NoStoreMiddleware
from rackwright.api.http.bodies import BodyCheckMiddleware
from rackwright.api.http.compression import GzipMiddleware
from rackwright.api.http.short_paths import ShortPathMiddleware
from rackwright.api.http.trace import TraceMiddleware
from rackwright.api.routes import (
    addresses,
    anneal,
    attribs,
    catalogue,
    domains,
    events,
    graph,
    groups,
    hook_calls,
    images,
    inputs,
    networks,
    node_roles,
    nodes,
    power,
    reach,
    reinstalls,
    runs,
    webhooks,
)
from rackwright.api.routes.deployments import deployment_roles, deployments, snapshots, target_systems
from rackwright.api.routes.machines import boot, machines
from rackwright.api.routes.people import me, sessions, tokens, users
from rackwright.api.routes.service import docs, health, metrics
from rackwright.api.routes.service.health import Readiness
from rackwright.api.routes.service.metrics import Meters, MetricsMiddleware
from rackwright.api.routes.service.ui import add_page
from rackwright.domain.networks.source_networks import source_network

PREFIX = "/api/v2"

MODULES = (
    *(nodes, power, deployments, snapshots, deployment_roles, node_roles, attribs, runs, groups, target_systems),
    *(inputs, addresses, reach, reinstalls, images),
    *(catalogue, networks, domains, anneal, graph, hook_calls, docs),
    *(sessions, me, users, tokens, events, webhooks),
)


def create_app(server: Server | None) -> FastAPI:
    """Return the application of a server, for people.

    None in place of the server: only to read the OpenAPI document, of this application and of the machines' routes.
    What machines use is served to them elsewhere (`create_machine_app`): who reaches people's address has no business
    with it. Simulated machines have no other address to call.
    """
    app = FastAPI(
        title="Rackwright",
        version=__version__,
        openapi_url=None,  # the document and its page are routes of ours, for people who are logged in
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=openapi.operation_id,
        redirect_slashes=False,
    )
    app.state.server = server
    app.state.public_bucket = Bucket(rate=50, burst=500)
    app.state.counts_as = source_network
    app.state.network_bucket = None
    app.state.refusals = Bucket(rate=1, burst=30)
    app.state.meters = Meters()
    app.state.readiness = Readiness()
    if server is not None:
        app.state.machine_bucket = machine_bucket(server.heartbeat)
        app.state.authenticator = Authenticator(server.store, server.policy.sessions)
        app.state.feed = EventFeed(server.store)
    for_machines = server is None or server.simulates
    # Before the routes for people, which take `/nodes/register` for a node of that name.
    for module in (machines, *MODULES) if for_machines else MODULES:
        app.include_router(module.router, prefix=PREFIX)
    if for_machines:
        app.include_router(boot.router)
    app.include_router(health.router)
    app.include_router(metrics.router)
    add_page(app)
    app.add_middleware(GzipMiddleware)
    # Simulated machines are not known to the authenticator, and send large bodies.
    app.add_middleware(BodyCheckMiddleware, authenticator=None if for_machines else app.state.authenticator)
    app.add_middleware(MetricsMiddleware, meters=app.state.meters, prefix=PREFIX)
    app.add_middleware(NoStoreMiddleware)
    app.add_middleware(TraceMiddleware)
    app.add_middleware(SessionCookieMiddleware)
    app.add_middleware(ShortPathMiddleware)  # the outermost: all others see the long path
    problems.install(app)
    openapi.install(app)
    return app


def create_machine_app(server: Server) -> FastAPI:
    """Return the application for the network that machines boot from: their routes, and nothing for people."""
    app = FastAPI(title="Rackwright", version=__version__, openapi_url=None, redirect_slashes=False)
    app.state.server = server
    app.state.public_bucket = Bucket(rate=50, burst=500)
    app.state.counts_as = str  # each address has its own limit: the machines of a rack share an IPv6 network
    app.state.network_bucket = Bucket(rate=500, burst=5000)  # and a host that takes many of its addresses has this one
    app.state.refusals = Bucket(rate=1, burst=30)
    app.state.machine_bucket = machine_bucket(server.heartbeat)
    app.include_router(machines.router, prefix=PREFIX)
    app.include_router(boot.router)
    app.get("/healthz", include_in_schema=False)(health.healthz)
    app.add_middleware(BodyCheckMiddleware)
    app.add_middleware(NoStoreMiddleware)
    app.add_middleware(TraceMiddleware)
    app.add_middleware(SessionCookieMiddleware)
    problems.install(app)
    return app
