"""Requests a second of the API: one node by name, and a filtered list, in a database of 10,000 nodes and 200,000
noderoles, against a bare FastAPI handler that does the same query in the same process, in turns. Also whether a page
costs the same in a table ten times as large.

    .venv/bin/python bench/api.py
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from sqlalchemy import text

import graph
from rackwright.api.app import create_app
from rackwright.api.serve import TOKEN_FILE, Options, listening, running
from rackwright.store import nodes
from rackwright.store.barclamps import import_barclamps
from rackwright.store.listing import Wanted, page_sql
from rackwright.store.session import Store
from report import at_least, at_most, emit

CONNECTIONS = 8
ROUNDS = 5
SECONDS = 3.0
LENGTH = 20
SMALL, LARGE = 1_000, 10_000
FILTER = "deployment=system&alive=true&limit=50"
NODE = "calm500.bench.example"


def bare_app(store: Store) -> FastAPI:
    """The same queries, with nothing around them."""
    app = FastAPI()
    wanted = Wanted("name", 50, filters={"deployment": ["system"], "alive": [True]})
    where, values = page_sql(nodes.NODES, wanted)
    one = text(f"{nodes._SELECT} WHERE n.name = :name OR n.id = :id")
    some = text(f"{nodes._SELECT_LISTED} {where}")

    @app.get("/nodes/{name}")
    async def get_node(name: str) -> dict[str, Any]:
        async with store.engine.connect() as connection:
            row = (await connection.execute(one, {"name": name, "id": -1})).one()
        return dict(row._mapping)

    @app.get("/nodes")
    async def list_nodes() -> dict[str, Any]:
        async with store.engine.connect() as connection:
            rows = (await connection.execute(some, values)).all()
        return {"items": [dict(row._mapping) for row in rows[:50]], "next": None}

    return app


async def serve(home: Path) -> None:
    """Both, on two ports, until standard input ends; commands on it: how many nodes there are to be."""
    async with running(Options(home, manual=True)) as server, contextlib.AsyncExitStack() as stack:
        roles = replace(graph.chain(LENGTH), jigs=())  # the server has the jig noop already
        await server.store.change(lambda session: import_barclamps(session, [roles]), graph=True)
        ports = [
            int((await stack.enter_async_context(listening(app))).rpartition(":")[2])
            for app in (create_app(server), bare_app(server.store))
        ]
        token = (home / TOKEN_FILE).read_text().strip()
        _say({"ours": ports[0], "bare": ports[1], "token": token})
        have = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            await graph.more_active(server.store, (int(line) - have) * LENGTH, have)
            have = int(line)
            async with server.store.engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.exec_driver_sql("VACUUM ANALYZE")
            _say({"nodes": have})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# --- the load


async def load(port: int, path: str, token: str, seconds: float) -> tuple[float, float]:
    """(requests a second, median latency in ms) of a few connections that ask as fast as they are answered."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    until = time.monotonic() + seconds
    times: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < until:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return len(times) / (time.monotonic() - began), statistics.median(times) * 1000


@contextlib.contextmanager
def served() -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(prefix="rackwright-bench-") as home:
        command = [sys.executable, __file__, "--serve", home]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(60)


def main() -> None:
    with served() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        known = json.loads(process.stdout.readline())

        def grow(count: int) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["nodes"] == count

        def measured(kind: str, path: str) -> tuple[float, float]:
            prefix = "/api/v2" if kind == "ours" else ""
            return asyncio.run(load(known[kind], prefix + path, known["token"], SECONDS))

        grow(SMALL)
        measured("ours", f"/nodes?{FILTER}")  # warm
        small = statistics.median(measured("ours", f"/nodes?{FILTER}")[1] for _ in range(3))
        grow(LARGE)
        figures: dict[str, Any] = {"nodes": LARGE, "noderoles": LARGE * LENGTH, "connections": CONNECTIONS}
        goals = []
        for name, path in (("get", f"/nodes/{NODE}"), ("list", f"/nodes?{FILTER}")):
            measured("ours", path), measured("bare", path)  # warm
            pairs = [(measured("ours", path), measured("bare", path)) for _ in range(ROUNDS)]
            figures[f"{name}_per_second"] = round(statistics.median(ours[0] for ours, _ in pairs), 1)
            figures[f"{name}_bare_per_second"] = round(statistics.median(bare[0] for _, bare in pairs), 1)
            figures[f"{name}_ms"] = round(statistics.median(ours[1] for ours, _ in pairs), 2)
            ratio = statistics.median(ours[0] / bare[0] for ours, bare in pairs)
            goals.append(at_least(f"{name} against the bare handler", ratio, 0.7))
        figures["list_ms_in_a_tenth_of_the_table"] = round(small, 2)
        goals.append(at_most("list latency, 10 times the table", figures["list_ms"] / small, 1.5))
        emit("api", figures, goals)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", type=Path)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
    else:
        main()
