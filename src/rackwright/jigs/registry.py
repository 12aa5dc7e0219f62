"""All jigs of a server, by kind. A new jig is a line here."""

from rackwright.jigs.base import Jig
from rackwright.jigs.noop import NoopJig
from rackwright.jigs.role_provided import RoleProvidedJig, Transitions
from rackwright.jigs.simulate import SimulateJig


def all_jigs(transitions: Transitions) -> dict[str, Jig]:
    return {
        "noop": NoopJig(),
        "role-provided": RoleProvidedJig(transitions),
        "simulate": SimulateJig(),
    }
