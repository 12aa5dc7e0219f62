"""Rate limits: how many requests one address may send to the public routes, and how often one machine may call."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from rackwright.domain.errors import RackwrightError
from rackwright.domain.networks.source_networks import source_network

SOURCES = 10_000
"""Addresses remembered; beyond that the address that was seen longest ago is forgotten."""


class TooMany(RackwrightError):
    """Too many requests from your address. Wait a little."""

    status = 429
    type = "too-many-requests"
    retry_after = 1
    """Seconds."""


class Bucket:
    """A token bucket for each address: `burst` at once, `rate` a second after that."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, source: str) -> bool:
        """Take one token of the source; False: it has none left."""
        now = self._clock()
        level, since = self._levels.pop(source, (self.burst, now))
        level = min(self.burst, level + (now - since) * self.rate)
        allowed = level >= 1
        self._levels[source] = (level - 1 if allowed else level, now)
        while len(self._levels) > SOURCES:
            self._levels.popitem(last=False)
        return allowed

    def wait(self, source: str) -> float:
        """Return the seconds until the source has a token again; 0: it has one now."""
        level, since = self._levels.get(source, (self.burst, 0.0))
        level = min(self.burst, level + (self._clock() - since) * self.rate)
        return max(0.0, (1 - level) / self.rate)

    def give_back(self, source: str) -> None:
        """Return a token to the source: what it was taken for turned out not to count."""
        if source in self._levels:
            level, since = self._levels[source]
            self._levels[source] = (min(self.burst, level + 1), since)


def source_of(request: Request) -> str:
    return request.client.host if request.client else ""


async def limit_requests(request: Request) -> str:
    """Refuse a source that sends too many requests; return its address: the dependency of public routes.

    `app.state.counts_as` says what an address is counted as; `app.state.network_bucket` limits its whole network
    besides, where a network has many machines.
    """
    source = source_of(request)
    bucket: Bucket = request.app.state.public_bucket
    counts_as: Callable[[str], str] = request.app.state.counts_as
    network_bucket: Bucket | None = request.app.state.network_bucket
    if not bucket.take(counts_as(source)):
        raise TooMany
    if network_bucket is not None and not network_bucket.take(source_network(source)):
        raise TooMany
    return source


Source = Annotated[str, Depends(limit_requests)]

HEARTBEAT_FACTOR = 4
"""A machine may call, in the long run, this many times as often as the heartbeats it is told to send."""


def machine_bucket(heartbeat: float) -> Bucket:
    """Return the bucket that limits machines, by key or by node.

    A machine that makes up a new boot each time would have each written down and emitted as an event.
    """
    return Bucket(rate=HEARTBEAT_FACTOR / heartbeat, burst=100)


def check_machine_rate(request: Request, machine: str) -> None:
    bucket: Bucket = request.app.state.machine_bucket
    if not bucket.take(machine):
        raise TooMany("Your machine makes itself heard too often. Wait a little.")
