"""Bytes from one connection to another, both ways, until both have ended."""

import asyncio
import contextlib

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def both_ways(one: Ends, other: Ends) -> None:
    try:
        await asyncio.gather(_pour(one[0], other[1]), _pour(other[0], one[1]))
    finally:
        for writer in (one[1], other[1]):
            writer.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
