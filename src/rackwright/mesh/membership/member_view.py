"""A read-only view of the cluster's members for the parts of an agent, and queries that several of them use.

The membership machine (`swim.py`) is such a view; a part that only reads is given the view and cannot change members.
"""

from typing import Protocol

from rackwright.mesh.membership.member import LIVE, Entry, MemberRecord

AUTHORITY_LABEL = "rackwright/authority"
"""The label of a member that holds the cluster's CA"""


class MemberView(Protocol):
    """The members that this server knows, to be read only."""

    @property
    def me(self) -> MemberRecord:
        """The record of this server itself."""

    def members(self) -> list[Entry]:
        """Return every member that is known, this server among them, the dead and those that left too."""

    def member(self, name: str) -> Entry | None: ...


def live_records(members: MemberView) -> list[MemberRecord]:
    """Return the records of the members that are alive or only suspected."""
    return [entry.record for entry in members.members() if entry.state in LIVE]


def authorities(members: MemberView) -> list[MemberRecord]:
    """Return the living members that say they hold the CA. One that lies about it cannot sign."""
    return [record for record in live_records(members) if dict(record.labels).get(AUTHORITY_LABEL) == "yes"]


def authority_names(members: MemberView) -> str:
    """Return the names of the living members that hold the CA, as text for a message."""
    return " or ".join(record.name for record in authorities(members)) or "none that is alive"
