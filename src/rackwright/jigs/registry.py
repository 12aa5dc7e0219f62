"""The registry of jigs: every class of this package that declares a kind. A new jig is one file beside this one."""

from typing import TYPE_CHECKING

from rackwright.jigs.base import Jig
from rackwright.registration import Registration, find_kinds

if TYPE_CHECKING:
    from rackwright.jigs.ports import JigPorts

PACKAGE = "rackwright.jigs"


def registered_jigs() -> tuple[Registration, ...]:
    return find_kinds(PACKAGE, Jig)


def jig_kinds() -> tuple[str, ...]:
    """Return the kinds that barclamps may name, without importing any jig."""
    return tuple(registration.kind for registration in registered_jigs())


def kinds_that_run_files() -> frozenset[str]:
    """Return the kinds whose runs run files of the role's barclamp."""
    return frozenset(registration.kind for registration in registered_jigs() if registration.value("runs_files"))


def make_jigs(ports: "JigPorts") -> dict[str, Jig]:
    """Make the jigs of a server, by kind. Those of a lab are left out if the server has no client for its machines."""
    jigs: dict[str, Jig] = {}
    for registration in registered_jigs():
        if registration.value("lab_only") and ports.lab_client is None:
            continue
        loaded = registration.load()
        assert issubclass(loaded, Jig)
        jigs[registration.kind] = loaded.make(ports)
    return jigs
