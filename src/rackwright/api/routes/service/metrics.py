"""/metrics for Prometheus: what this process did, and the state of the whole system as the database has it.

Not public: it takes a token that may read, or an address that the settings list.
"""

import time
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rackwright.annealer.supervision import Supervisor
from rackwright.api.auth.limits import source_of
from rackwright.api.context import Server, authenticate, require_permission
from rackwright.domain.people import Permission
from rackwright.store.db.counts import SystemCounts, read_system_counts

router = APIRouter(tags=["metrics"], include_in_schema=False)


class Meters:
    """The metrics of served requests. Each application has its own, so that tests and servers do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.requests = Counter(
            "rackwright_http_requests",
            "Requests by route, and what they were answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "rackwright_http_request_seconds",
            "How long answers took; of streams, until they began.",
            ["method", "route"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=self.registry,
        )


class MetricsMiddleware:
    """ASGI middleware that counts every request under the pattern of its route, of which there are not many."""

    def __init__(self, app: ASGIApp, meters: Meters, prefix: str) -> None:
        self._app = app
        self._meters = meters
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        is_counted = False

        async def send_and_count(message: Message) -> None:
            nonlocal is_counted
            if message["type"] == "http.response.start" and not is_counted:
                is_counted = True
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, send_and_count)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # Methods and paths that no route serves are made up by clients: they all count as one.
        route = getattr(scope.get("route"), "path", None) or "unknown"
        method = scope["method"] if route != "unknown" else "any"
        # A route knows its router's prefix, but not always the one that the router was included under.
        if route != "unknown" and scope["path"].startswith(f"{self._prefix}/") and not route.startswith(self._prefix):
            route = self._prefix + route
        self._meters.requests.labels(method, route, str(status)).inc()
        self._meters.seconds.labels(method, route).observe(seconds)


class _SystemCollector:
    """Prometheus collector of the system's state at one moment, for one answer."""

    def __init__(self, server: Server, counts: SystemCounts) -> None:
        self._server = server
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        counts = self._counts
        yield _gauge("rackwright_noderoles", "Noderoles by state.", "state", counts.noderoles)
        yield _gauge("rackwright_runs", "Runs that are not over, by state.", "state", counts.runs)
        yield _gauge("rackwright_nodes", "Nodes that are alive, and those that are not.", "alive", counts.nodes)
        yield _gauge("rackwright_hook_calls", "Calls of hooks that wait or were given up.", "state", counts.hook_calls)
        yield _gauge("rackwright_webhooks", "Webhooks by state.", "state", counts.webhooks)
        yield from _background_metrics(self._server.supervisor)
        annealer = self._server.annealer
        if annealer is not None:
            for name, value in vars(annealer.counters).items():
                family = CounterMetricFamily(f"rackwright_annealer_{name}", f"{name} since this server started.")
                family.add_metric([], value)
                yield family


def _background_metrics(supervisor: Supervisor) -> Iterable[Metric]:
    broken = GaugeMetricFamily(
        "rackwright_background_broken", "1 for background work that broke and is started again.", labels=["part"]
    )
    restarts = CounterMetricFamily(
        "rackwright_background_restarts", "How often background work broke and was started again.", labels=["part"]
    )
    for part in supervisor.parts.values():
        broken.add_metric([part.name], 1 if part.error else 0)
        restarts.add_metric([part.name], part.restarts)
    return [broken, restarts]


def _gauge(name: str, description: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, description, labels=[label])
    for label_value, count in sorted(values.items()):
        family.add_metric([label_value], count)
    return family


_bearer = HTTPBearer(auto_error=False)


async def _check_reader(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Refuse a caller who may not read metrics: the dependency of the route."""
    server: Server = request.app.state.server
    source = source_of(request)
    if source and any(ip_address(source) in network for network in server.policy.metrics_allow):
        return
    await require_permission(Permission.READ)(await authenticate(request, credentials))


@router.get("/metrics", dependencies=[Depends(_check_reader)])
async def metrics(request: Request) -> Response:
    server: Server = request.app.state.server
    meters: Meters = request.app.state.meters
    async with server.store.read() as session:
        counts = await read_system_counts(session)
    system = CollectorRegistry()
    system.register(_SystemCollector(server, counts))
    return Response(generate_latest(meters.registry) + generate_latest(system), media_type=CONTENT_TYPE_LATEST)
