"""Whether a system can be installed on a machine with its kind of processor.

What cannot is refused while the machine is untouched: it would replace what is on the disks, and never start.
"""

from rackwright.domain.architectures import Architecture, machine_architecture
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.request import InstallRequest, Problem

SYSTEM_ATTRIB = "provisioner-target-os"
INSTALLED = tuple(architecture.value for architecture in Architecture if architecture.is_installed)
"""The kinds of machine that systems are installed on."""
MOST_SHOWN = 40


def check_processor(request: InstallRequest) -> tuple[Problem, ...]:
    """Return why a machine's processor runs nothing that could be installed; nothing while it is not known."""
    image = request.image
    mismatch = "" if image is None else find_mismatch(request.facts, image.system, image.architecture)
    machine = machine_architecture(request.facts)
    reasons = [mismatch] if mismatch else []
    if machine is not None and machine not in INSTALLED:
        reasons.append(
            f"nothing can be installed on {machine[:MOST_SHOWN]} machines yet: they are discovered and managed, and "
            "their disks are left alone"
        )
    return (Problem(SYSTEM_ATTRIB, "; ".join(reasons)),) if reasons else ()


def find_mismatch(facts: JsonObject, system: str, architecture: str) -> str:
    """Return why a system is not for the machine of which these facts are known; empty: it is, or nobody knows."""
    machine = machine_architecture(facts)
    if machine in (None, architecture):
        return ""
    return f"the machine has a processor of the kind {machine[:MOST_SHOWN]!r}, and {system} is for {architecture}"
