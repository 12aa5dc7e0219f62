"""Reading and changing the zones of a DNS server by its own protocol: transfers, and updates by RFC 2136, all of it
signed with a shared key (TSIG). Knows no particular server: Knot and BIND do the same with it."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import dns.asyncquery
import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.tsig
import dns.update
import dns.zone

from rackwright.domain.networks.dns import TTL, Record, RecordType
from rackwright.provision.daemon import DaemonFailed

T = TypeVar("T")

ANSWER_TIME = 30.0
CHANGES = 400
"""In one message: it holds 64 KiB, and no name is longer than 255 octets with what is said of it twice as much."""


@dataclass(frozen=True)
class Key:
    name: str
    secret: bytes = field(repr=False)
    algorithm: str = "hmac-sha256"


class DnsClient:
    def __init__(self, address: str, port: int, key: Key) -> None:
        self._address = address
        self._port = port
        self._key = dns.tsig.Key(key.name, key.secret, key.algorithm)
        self._ring = {self._key.name: self._key}

    async def records(self, zone: str) -> frozenset[Record]:
        """What the server has of a zone, by transfer; of what we write, that is."""
        content = dns.zone.Zone(zone)
        query = dns.message.make_query(zone, "AXFR")
        query.use_tsig(self._ring, self._key.name)
        try:
            async with asyncio.timeout(ANSWER_TIME):
                await dns.asyncquery.inbound_xfr(self._address, content, query, port=self._port)
        except (dns.exception.DNSException, OSError, TimeoutError, EOFError) as error:
            raise DaemonFailed(f"Zone {zone} cannot be read from {self._where}: {_reason(error)}") from None
        known = {dns.rdatatype.from_text(one.value): one for one in RecordType}
        return frozenset(
            Record(
                name.derelativize(dns.name.from_text(zone)).to_text(omit_final_dot=True).lower(),
                known[data.rdtype],
                _value(data, zone),
            )
            for name, ttl, data in content.iterate_rdatas()
            if data.rdtype in known and ttl == TTL
        )

    async def update(self, zone: str, remove: Collection[Record], add: Collection[Record]) -> None:
        """Change a zone. What is removed goes first, so that a name may change what it stands for."""
        changes = [*((False, one) for one in sorted(remove)), *((True, one) for one in sorted(add))]
        for some in _chunks(changes, CHANGES):
            message = dns.update.UpdateMessage(zone, keyring=self._ring, keyname=self._key.name)
            for adding, one in some:
                value = f"{one.value}." if one.type is RecordType.PTR else one.value
                if adding:
                    message.add(f"{one.name}.", TTL, one.type.value, value)
                else:
                    message.delete(f"{one.name}.", one.type.value, value)
            await self._send(zone, message)

    async def _send(self, zone: str, message: dns.update.UpdateMessage) -> None:
        try:
            answer = await dns.asyncquery.tcp(message, self._address, ANSWER_TIME, self._port)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise DaemonFailed(f"Zone {zone} cannot be changed at {self._where}: {_reason(error)}") from None
        if answer.rcode() != dns.rcode.NOERROR:
            raise DaemonFailed(f"{self._where} refused the update of zone {zone}: {dns.rcode.to_text(answer.rcode())}.")

    @property
    def _where(self) -> str:
        return f"the DNS server at {self._address} port {self._port}"


def _value(data: object, zone: str) -> str:
    target = getattr(data, "target", None)
    if isinstance(target, dns.name.Name):
        return target.derelativize(dns.name.from_text(zone)).to_text(omit_final_dot=True).lower()
    return str(data)


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
