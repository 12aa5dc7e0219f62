"""The registry of hammers: every class of this package that declares a kind. A new hammer is one file beside this one.

API, command line and barclamps derive the kinds they know from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackwright.hammers.base import Hammer
from rackwright.registration import Registration, find_kinds

if TYPE_CHECKING:
    from rackwright.hammers.ports import HammerPorts

PACKAGE = "rackwright.hammers"


@dataclass(frozen=True)
class HammerKind:
    """The values that a hammer's file declares; see `base.Hammer`."""

    name: str
    description: str
    priority: int
    bmc: bool
    lab_only: bool


def hammer_kinds() -> tuple[HammerKind, ...]:
    """Return the kinds that barclamps may name, the preferred first, without importing any hammer.

    The kinds of a lab are not among them: its machines report themselves what they are.
    """
    kinds = [_kind_of(registration) for registration in registered_hammers()]
    return tuple(sorted((kind for kind in kinds if not kind.lab_only), key=lambda kind: (kind.priority, kind.name)))


def bmc_kinds() -> tuple[str, ...]:
    """Return the kinds that people may choose for a machine's BMC, the preferred first."""
    return tuple(kind.name for kind in hammer_kinds() if kind.bmc)


def registered_hammers() -> tuple[Registration, ...]:
    return find_kinds(PACKAGE, Hammer)


def make_hammers(ports: "HammerPorts") -> Sequence[Hammer]:
    """Make the hammers of a server: all for which it has the ports they need, those of a lab in a lab only."""
    hammers: list[Hammer] = []
    for registration in registered_hammers():
        if registration.value("lab_only") and not ports.lab:
            continue
        loaded = registration.load()
        assert issubclass(loaded, Hammer)
        hammer = loaded.make(ports)
        if hammer is not None:
            hammers.append(hammer)
    return sorted(hammers, key=lambda hammer: (hammer.priority, hammer.kind))


def _kind_of(registration: Registration) -> HammerKind:
    priority = registration.value("priority")
    assert isinstance(priority, int)
    return HammerKind(
        registration.kind,
        str(registration.value("description")),
        priority,
        bool(registration.value("bmc")),
        bool(registration.value("lab_only")),
    )
