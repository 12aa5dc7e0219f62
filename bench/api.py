"""Requests a second and latency of the API: one node by name, and a filtered list, in a database of 10,000 nodes and
200,000 noderoles.

The server is `rackwright server` as people start it. Its peer (`bench/peers/bare_api.py`) is another process that
shares no line with it: a FastAPI handler that reads one row with psycopg. Both are asked in turns. Also measured: the
same over TLS and on the machines' listener, and whether a page costs the same in a table ten times as large.

    .venv/bin/python bench/api.py [--before FOLDER]     # FOLDER: the src of another checkout, measured in the same run
"""

import argparse
import asyncio
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
from sqlalchemy import make_url

import graph
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.database import open_database
from rackwright.store.embedded.server import EmbeddedPostgres
from rackwright.store.store import Store
from report import at_least, at_most, emit
from waiting import wait_until

SOURCE = Path(__file__).parents[1] / "src"
PEERS = Path(__file__).parent / "peers"

CONNECTIONS = 8
ROUNDS = 5
SECONDS = 3.0
LENGTH = 20
SMALL, LARGE = 1_000, 10_000
PREFIX = "/api/v2"
FILTER = "deployment=system&alive=true&limit=50"
NODE = "calm500.bench.example"
PATIENCE = 120.0


@dataclass(frozen=True)
class Place:
    """Where one server listens, and how it is asked."""

    port: int
    token: str = ""
    tls: ssl.SSLContext | None = None


# --- the servers, each a process


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.DEVNULL) as started:
        try:
            yield started
        finally:
            started.terminate()
            started.wait(PATIENCE)


def wait_for_answer(started: subprocess.Popen[bytes], address: str, tls: ssl.SSLContext | bool = True) -> None:
    def answers() -> bool:
        try:
            httpx.get(address, verify=tls, trust_env=False)
        except httpx.TransportError:
            if started.poll() is not None:
                raise
            return False
        return True

    wait_until(answers, f"{address} answers", PATIENCE, every=0.1)


@contextmanager
def our_server(home: Path, database: str, source: Path, *, tls: bool = False) -> Iterator[tuple[Place, Place]]:
    """`rackwright server` from a source tree; gives people's listener and the machines'."""
    port, machines_port, tftp_port = free_port(), free_port(), free_port(socket.SOCK_DGRAM)
    command = [sys.executable, "-m", "rackwright", "server", "--manual", "--home", str(home), "--port", str(port)]
    command += ["--provision-address", "127.0.0.1", "--provision-port", str(machines_port)]
    command += ["--tls"] if tls else []
    variables = {
        "PYTHONPATH": str(source),
        "RACKWRIGHT_DATABASE_URL": database,
        "RACKWRIGHT_TFTP_PORT": str(tftp_port),
    }
    with process(command, **variables) as started:
        wait_for_answer(started, f"http://127.0.0.1:{machines_port}/healthz")
        context = ssl.create_default_context(cafile=str(home / "tls" / "certificate.pem")) if tls else None
        host = "localhost" if tls else "127.0.0.1"
        wait_for_answer(started, f"http{'s' * tls}://{host}:{port}/healthz", context or True)
        token = (home / TOKEN_FILE).read_text().strip()
        yield Place(port, token, context), Place(machines_port)


@contextmanager
def bare_server(database: str) -> Iterator[Place]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(PEERS), "bare_api:app", "--port", str(port)]
    command += ["--no-access-log", "--log-level", "warning"]
    with process(command, BENCH_DATABASE_URL=database.replace("+psycopg", "")) as started:
        wait_for_answer(started, f"http://127.0.0.1:{port}/nodes/{NODE}")
        yield Place(port)


# --- the data


async def fill(database: str, have: int, want: int) -> None:
    async with await open_database(database, Path()) as opened:
        store = Store(opened)
        if not have:
            roles = replace(graph.chain(LENGTH), jigs=())  # the server has the jig noop already
            await store.change_graph(lambda session: import_barclamps(session, [roles]))
        await graph.more_active(store, (want - have) * LENGTH, have)
        async with store.engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql("VACUUM ANALYZE")


# --- the load


async def load(place: Place, path: str, connections: int) -> tuple[float, float]:
    """(requests a second, median latency in ms) of connections that are kept, and ask as fast as they are answered."""
    authorization = f"Authorization: Bearer {place.token}\r\n" if place.token else ""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n{authorization}\r\n".encode()
    until = time.monotonic() + SECONDS
    times: list[float] = []

    async def ask_on_one_connection() -> None:
        name = "localhost" if place.tls else None
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=place.tls, server_hostname=name)
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
    await asyncio.gather(*(ask_on_one_connection() for _ in range(connections)))
    return len(times) / (time.monotonic() - began), statistics.median(times) * 1000


def measure(place: Place, path: str, connections: int = CONNECTIONS) -> tuple[float, float]:
    return asyncio.run(load(place, path, connections))


# --- the figures


def latencies(people: Place, machines: Place) -> dict[str, float]:
    """Median milliseconds of one kept connection."""
    return {
        "healthz_ms": round(measure(people, "/healthz", 1)[1], 2),
        "healthz_for_machines_ms": round(measure(machines, "/healthz", 1)[1], 2),
        "node_ms": round(statistics.median(measure(people, f"{PREFIX}/nodes/{NODE}", 1)[1] for _ in range(3)), 2),
    }


def figures_of_another(source: Path, home: Path, database: str) -> dict[str, float]:
    """Those of another version, which may know of fewer tables: in a database of its own, with that one node."""
    own = make_url(database).set(database="before").render_as_string(hide_password=False)
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE DATABASE before")
    with our_server(home, own, source) as (people, machines):
        headers = {"Authorization": f"Bearer {people.token}"}
        address = f"http://127.0.0.1:{people.port}{PREFIX}/nodes"
        httpx.post(address, json={"name": NODE}, headers=headers, trust_env=False).raise_for_status()
        per_second = round(measure(people, f"{PREFIX}/nodes/{NODE}")[0])
        return latencies(people, machines) | {"node_per_second": per_second}


def main(before: Path | None) -> None:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rackwright-bench-")))
        postgres = EmbeddedPostgres(home / "postgres")
        database = postgres.join()
        stack.callback(postgres.leave)
        with our_server(home / "server", database, SOURCE) as (people, machines):
            asyncio.run(fill(database, 0, SMALL))
            listing = f"{PREFIX}/nodes?{FILTER}"
            measure(people, listing)  # warm
            small = statistics.median(measure(people, listing)[1] for _ in range(3))
            asyncio.run(fill(database, SMALL, LARGE))
            with bare_server(database) as bare:
                measure(people, listing), measure(people, f"{PREFIX}/nodes/{NODE}"), measure(bare, f"/nodes/{NODE}")
                pairs = [
                    (measure(people, f"{PREFIX}/nodes/{NODE}"), measure(bare, f"/nodes/{NODE}")) for _ in range(ROUNDS)
                ]
            lists = [measure(people, listing) for _ in range(ROUNDS)]
            figures: dict[str, Any] = {
                "nodes": LARGE,
                "noderoles": LARGE * LENGTH,
                "connections": CONNECTIONS,
                "node_per_second": round(statistics.median(ours[0] for ours, _ in pairs)),
                "bare_per_second": round(statistics.median(peer[0] for _, peer in pairs)),
                "list_per_second": round(statistics.median(rate for rate, _ in lists)),
                "list_ms": round(statistics.median(latency for _, latency in lists), 2),
                "list_ms_in_a_tenth_of_the_table": round(small, 2),
                "one_connection": latencies(people, machines),
            }
        with our_server(home / "server", database, SOURCE, tls=True) as (people, machines):
            figures["one_connection_tls"] = latencies(people, machines)
        if before is not None:
            figures["before"] = figures_of_another(before, home / "before", database)
    ratio = statistics.median(ours[0] / peer[0] for ours, peer in pairs)
    goals = [
        at_most("milliseconds for a node on one kept connection", figures["one_connection"]["node_ms"], 2.5),
        at_most("the same over TLS", figures["one_connection_tls"]["node_ms"], 2.5),
        at_least("node, 8 connections, against the bare handler in a process of its own", ratio, 0.5),
        at_most("list latency, 10 times the table", figures["list_ms"] / small, 1.5),
    ]
    emit("api", figures, goals)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="the src folder of another checkout to measure in the same run")
    main(parser.parse_args().before)
