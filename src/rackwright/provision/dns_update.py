"""A client that reads and changes the zones of a DNS server: by transfers, and by updates as of RFC 2136.

All of it is signed with a shared key (TSIG). Knows no particular server: Knot and BIND do the same with it.
"""

import asyncio
import time
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
import dns.xfr
import dns.zone

from rackwright.domain.networks.dns import TTL, Record, RecordType
from rackwright.provision.daemon import DaemonFailed

T = TypeVar("T")

ANSWER_TIME = 30.0
LOADING_TIME, LOADING_PAUSE = 15.0, 0.1
"""Seconds in which a server that was just told of a zone has loaded it, and between two questions whether it has."""
CHANGES = 400
"""Changes in one message: a message holds 64 KiB, and a name has at most 255 octets, its record twice as much."""


@dataclass(frozen=True)
class TsigKey:
    """A shared key that signs messages."""

    name: str
    secret: bytes = field(repr=False)
    algorithm: str = "hmac-sha256"


class DnsClient:
    """Reads and changes the zones of one DNS server."""

    def __init__(self, address: str, port: int, key: TsigKey) -> None:
        self._address = address
        self._port = port
        self._key = dns.tsig.Key(key.name, key.secret, key.algorithm)
        self._ring = {self._key.name: self._key}

    async def read_records(self, zone: str) -> frozenset[Record]:
        """Return the records of a zone that are such as we write, read by a transfer."""
        try:
            async with asyncio.timeout(ANSWER_TIME):
                content = await self._transfer(zone)
        except (dns.exception.DNSException, OSError, TimeoutError, EOFError) as error:
            raise DaemonFailed(
                f"Zone {zone} cannot be read from {self._server_description}: {_error_text(error)}"
            ) from None
        types = {dns.rdatatype.from_text(type.value): type for type in RecordType}
        return frozenset(
            Record(
                name.derelativize(dns.name.from_text(zone)).to_text(omit_final_dot=True).lower(),
                types[data.rdtype],
                _record_value(data, zone),
            )
            for name, ttl, data in content.iterate_rdatas()
            if data.rdtype in types and ttl == TTL
        )

    async def _transfer(self, zone: str) -> dns.zone.Zone:
        """Return a zone as the server has it. One that it is still loading it answers with SERVFAIL."""
        query = dns.message.make_query(zone, "AXFR")
        query.use_tsig(self._ring, self._key.name)
        ends = time.monotonic() + LOADING_TIME
        while True:
            content = dns.zone.Zone(zone)
            try:
                await dns.asyncquery.inbound_xfr(self._address, content, query, port=self._port)
            except dns.xfr.TransferError as error:
                if error.rcode != dns.rcode.SERVFAIL or time.monotonic() > ends:
                    raise
                await asyncio.sleep(LOADING_PAUSE)
            else:
                return content

    async def update(self, zone: str, remove: Collection[Record], add: Collection[Record]) -> None:
        """Change a zone. Records are removed before others are added, so that a name may get another value."""
        changes = [*((False, record) for record in sorted(remove)), *((True, record) for record in sorted(add))]
        for chunk in _chunks(changes, CHANGES):
            message = dns.update.UpdateMessage(zone, keyring=self._ring, keyname=self._key.name)
            for adding, record in chunk:
                value = f"{record.value}." if record.type is RecordType.PTR else record.value
                if adding:
                    message.add(f"{record.name}.", TTL, record.type.value, value)
                else:
                    message.delete(f"{record.name}.", record.type.value, value)
            await self._send(zone, message)

    async def _send(self, zone: str, message: dns.update.UpdateMessage) -> None:
        try:
            response = await dns.asyncquery.tcp(message, self._address, ANSWER_TIME, self._port)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise DaemonFailed(
                f"Zone {zone} cannot be changed at {self._server_description}: {_error_text(error)}"
            ) from None
        if response.rcode() != dns.rcode.NOERROR:
            raise DaemonFailed(
                f"{self._server_description} refused the update of zone {zone}: {dns.rcode.to_text(response.rcode())}."
            )

    @property
    def _server_description(self) -> str:
        return f"the DNS server at {self._address} port {self._port}"


def _record_value(data: object, zone: str) -> str:
    target = getattr(data, "target", None)
    if isinstance(target, dns.name.Name):
        return target.derelativize(dns.name.from_text(zone)).to_text(omit_final_dot=True).lower()
    return str(data)


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
