"""Servers in network namespaces for tests: made for a test, hurt by it, and gone after it, also after Ctrl-C.

`network` removes its namespaces however the block ends; agents of a `cluster` die with the test process even if that is
killed, and what a killed test run left of namespaces is swept by the next one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackwright.mesh.datastore_config import DatastoreConfig
from rackwright.mesh.fleet import Fleet
from rackwright.mesh.namespaces import Network, sweep


@contextmanager
def network(servers: Sequence[str], prefix: str | None = None) -> Iterator[Network]:
    sweep()
    made = Network(servers, prefix)
    try:
        made.up()
        yield made
    finally:
        made.down()


@contextmanager
def fleet(
    folder: Path, servers: Sequence[str], wires: Network | None = None, datastore: DatastoreConfig | None = None
) -> Iterator[Fleet]:
    """Servers with a folder each and no cluster yet; on loopback if they have no network of their own."""
    made = Fleet(folder, servers, wires, die_with_me=True, datastore=datastore)
    for server in servers:
        made.home(server).mkdir(parents=True, mode=0o700)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def cluster(
    folder: Path, servers: Sequence[str], wires: Network | None = None, datastore: DatastoreConfig | None = None
) -> Iterator[Fleet]:
    """A cluster in which everyone is known to be alive by everyone."""
    with fleet(folder, servers, wires, datastore) as made:
        made.found()
        made.start_all()
        made.wait_agree(dict.fromkeys(servers, "alive"))
        yield made
