"""Relays bytes between two connections, in both directions, until both have ended."""

import asyncio
import contextlib

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def relay_both_ways(first: Connection, second: Connection) -> None:
    try:
        await asyncio.gather(_copy(first[0], second[1]), _copy(second[0], first[1]))
    finally:
        for writer in (first[1], second[1]):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
