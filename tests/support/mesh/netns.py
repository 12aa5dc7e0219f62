"""Servers in network namespaces for tests: made for a test, hurt by it, and gone after it, also after Ctrl-C.

`network` removes its namespaces however the block ends; agents of a `cluster` die with the test process even if that is
killed, and what a killed test run left of namespaces is swept by the next one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE

from rackwright.lab.mesh_fleet import Fleet
from rackwright.lab.namespaces import Network, sweep
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig

UNHURRIED: Mapping[str, Any] = {
    "suspicion_multiplier": 15,
    "suspicion_max_multiplier": 1,
    "dial_timeout": 10.0,
    "dial_rounds": 10,
    "pause_threshold": 3600.0,
}
"""Protocol settings with which no server is held dead because the machine of the test is busy: a suspect has 15 seconds
to speak up, and a process may get no processor for ten. A killed agent is known to be dead at once even so: its
refusals prove it, and not its silence.
"""

AS_SHIPPED: Mapping[str, Any] = {}
"""Protocol settings as people have them, for tests of silence. A busy machine may make somebody dead for a while."""


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
    folder: Path,
    servers: Sequence[str],
    wires: Network | None = None,
    datastore: DatastoreConfig | None = None,
    swim: Mapping[str, Any] = UNHURRIED,
) -> Iterator[Fleet]:
    """Servers with a folder each and no cluster yet; on loopback if they have no network of their own."""
    made = Fleet(folder, servers, wires, die_with_me=True, datastore=datastore, swim=swim, patience=PATIENCE)
    for server in servers:
        made.home(server).mkdir(parents=True, mode=0o700)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def cluster(
    folder: Path,
    servers: Sequence[str],
    wires: Network | None = None,
    datastore: DatastoreConfig | None = None,
    swim: Mapping[str, Any] = UNHURRIED,
) -> Iterator[Fleet]:
    """A cluster in which everyone is known to be alive by everyone."""
    with fleet(folder, servers, wires, datastore, swim) as made:
        made.create_cluster()
        made.start_all()
        made.wait_agree(dict.fromkeys(servers, "alive"))
        yield made
