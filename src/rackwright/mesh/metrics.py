"""The agent's Prometheus metrics. They have a registry of their own: two agents in one process share no counters."""

import asyncio
import collections
from collections.abc import Iterator
from dataclasses import fields
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rackwright.mesh.address import Address
from rackwright.mesh.membership.swim import State, Swim


class Metrics:
    """The counters and gauges of one agent."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="rackwright_mesh", registry=self.registry)
        gauge = partial(Gauge, namespace="rackwright_mesh", registry=self.registry)
        self.refused = counter("refused", "What came from outside and was refused", ["reason"])
        self.frames = counter("frames", "Frames sent and received", ["direction"])
        self.bytes = counter("bytes", "Bytes of frames sent and received", ["direction"])
        self.dropped = counter("dropped", "Messages not sent", ["reason"])
        self.dials = counter("dials", "Connections tried", ["outcome"])
        self.part_failures = counter("part_failures", "Parts of the agent that failed and were started again", ["part"])
        self.events = counter("events", "Membership events", ["kind"])
        self.links = gauge("links", "Open connections to members")
        self.checks = gauge("check_passing", "1 while a check of this server's software passes", ["check"])
        self.awareness = gauge("awareness", "How slow this server believes itself to be; 0 is well")
        self.certificate = gauge("certificate_expires_seconds", "Unix time at which the certificate expires")
        self.revocations = gauge("revocations_version", "Version of the revocation list in force")

    def watch(self, swim: Swim) -> None:
        """Include the counters of a membership machine."""
        self.registry.register(_SwimCounters(swim))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _SwimCounters(Collector):
    def __init__(self, swim: Swim) -> None:
        self.swim = swim

    def collect(self) -> Iterator[Metric]:
        for field in fields(self.swim.counters):
            name = f"rackwright_mesh_swim_{field.name}"
            value = getattr(self.swim.counters, field.name)
            yield CounterMetricFamily(name, "Counted by the membership machine", value)
        # Counted when the metrics are read: counting at every event would cost as much as there are members.
        members = GaugeMetricFamily("rackwright_mesh_members", "Members by state", labels=["state"])
        states = collections.Counter(entry.state for entry in self.swim.members())
        for state in State:
            members.add_metric([state.name.lower()], states[state])
        yield members


async def serve(metrics: Metrics, address: Address) -> asyncio.Server:
    """Serve the metrics over HTTP for a scraper: any request is answered with them."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5.0):
                await reader.readuntil(b"\r\n\r\n")
                body = metrics.text()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE_LATEST}\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The scraper went away; it asks again.
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, address.host, address.port, limit=8192)
