"""What strangers may do to the public routes: a bounded number of requests, of a bounded size."""

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Annotated

from fastapi import Depends, Request

from rackwright.domain.errors import RackwrightError

SOURCES = 10_000
"""Addresses remembered; beyond that the one not seen for longest is forgotten."""


class TooMany(RackwrightError):
    """Too many requests from your address. Wait a little."""

    status = 429
    type = "too-many-requests"
    retry_after = 1
    """Seconds."""


class Bucket:
    """A token bucket an address: `burst` at once, `rate` a second after that."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, source: str) -> bool:
        now = self._clock()
        level, since = self._levels.pop(source, (self.burst, now))
        level = min(self.burst, level + (now - since) * self.rate)
        allowed = level >= 1
        self._levels[source] = (level - 1 if allowed else level, now)
        while len(self._levels) > SOURCES:
            self._levels.popitem(last=False)
        return allowed

    def wait(self, source: str) -> float:
        """Seconds until the next one is allowed; 0: now."""
        level, since = self._levels.get(source, (self.burst, 0.0))
        level = min(self.burst, level + (self._clock() - since) * self.rate)
        return max(0.0, (1 - level) / self.rate)

    def give_back(self, source: str) -> None:
        """What was taken turned out not to count."""
        if source in self._levels:
            level, since = self._levels[source]
            self._levels[source] = (min(self.burst, level + 1), since)


def source_network(address: str) -> str:
    """Whom an address counts for: an IPv4 host, or the IPv6 network of a host, who has all addresses in it."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed, 64), strict=False))
    return str(parsed)


def source_of(request: Request) -> str:
    return request.client.host if request.client else ""


async def limited(request: Request) -> str:
    """The dependency of public routes; gives the caller's address. `counts_as` says for whom an address counts."""
    source = source_of(request)
    bucket: Bucket = request.app.state.public_bucket
    counts_as: Callable[[str], str] = request.app.state.counts_as
    if not bucket.take(counts_as(source)):
        raise TooMany
    return source


Source = Annotated[str, Depends(limited)]

OFTENER = 4
"""How many times as often as it is told to a machine may make itself heard in the long run."""


def machine_bucket(heartbeat: float) -> Bucket:
    """What a machine may say, by its key or node. Each boot that it makes up is written down, and told to others."""
    return Bucket(rate=OFTENER / heartbeat, burst=100)


def check_machine(request: Request, machine: str) -> None:
    bucket: Bucket = request.app.state.machine_bucket
    if not bucket.take(machine):
        raise TooMany("Your machine makes itself heard too often. Wait a little.")
