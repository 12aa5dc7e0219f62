"""The DNS domains of node names: which may be served, and which domain a name is in. Pure."""

from collections.abc import Collection

from rackwright.domain.errors import Invalid
from rackwright.domain.names import PHANTOM_SUFFIX, is_host_name

PRIVATE = frozenset({"internal", "intranet", "private", "corp", "home", "lan", "local", "test", "example", "invalid"})
"""Domains of one label that nobody has on the internet. All others are registries: serving one would hide all of it."""


def check_domain(name: str) -> str:
    """Return a domain in lower case; raise Invalid if it may not be served."""
    lowered = name.lower().rstrip(".")
    if not is_host_name(lowered) or lowered.endswith(".arpa") or lowered == "arpa":
        raise Invalid(f"{name[:80]!r} is no domain for nodes; one looks like rack.example.", "/name")
    if "." not in lowered and lowered not in PRIVATE:
        raise Invalid(
            f"{name[:80]!r} is a whole top-level domain, which would hide all of it. Use one below it, or a private "
            f"one: {', '.join(sorted(PRIVATE))}.",
            "/name",
        )
    if f".{lowered}".endswith(PHANTOM_SUFFIX):
        raise Invalid(f"{PHANTOM_SUFFIX.strip('.')} is kept for the services of deployments.", "/name")
    return lowered


def domain_of(node_name: str, domains: Collection[str]) -> str | None:
    """Return the longest of these domains that a name is below; None if it is below none."""
    above = [".".join(labels) for labels in _tails(node_name.split("."))]
    return next((domain for domain in above if domain in domains), None)


def _tails(labels: list[str]) -> list[list[str]]:
    return [labels[start:] for start in range(1, len(labels))]
