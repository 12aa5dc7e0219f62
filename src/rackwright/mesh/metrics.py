"""The agent's Prometheus metrics, in a registry of their own: two agents in one process share no counters."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="rackwright_mesh", registry=self.registry)
        gauge = partial(Gauge, namespace="rackwright_mesh", registry=self.registry)
        self.refused = counter("refused", "What came from outside and was refused", ["reason"])
        self.frames = counter("frames", "Frames sent and received", ["direction"])
        self.bytes = counter("bytes", "Bytes of frames sent and received", ["direction"])
        self.dropped = counter("dropped", "Messages not sent", ["reason"])
        self.dials = counter("dials", "Connections tried", ["outcome"])
        self.events = counter("events", "Membership events", ["kind"])
        self.links = gauge("links", "Open connections to members")
        self.members = gauge("members", "Members by state", ["state"])
        self.checks = gauge("check_passing", "1 while a check of this server's software passes", ["check"])
        self.awareness = gauge("awareness", "How slow this server believes itself to be; 0 is well")
        self.certificate = gauge("certificate_expires_seconds", "Unix time at which the certificate expires")
        self.revocations = gauge("revocations_version", "Version of the revocation list in force")

    def text(self) -> bytes:
        return generate_latest(self.registry)
