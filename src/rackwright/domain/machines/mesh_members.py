"""Members of a mesh as the control plane sees them: which nodes they are, and the mark that their nodes get.

Values and rules only. The mesh decides who is a member; this module says what that means for nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.names import check_node_name

MARK = "mesh"
"""The key of the mark: what the mesh says of a node is below this key in the node's discovery."""
DOMAIN = "mesh.internal"
"""The domain of nodes of which only their short name in the mesh is known."""
MEMBER_ROLE = "mesh-member"
DATASTORE_ROLE = "mesh-datastore"
ATTRIBS = frozenset({"mesh-member-name", "mesh-member-state", "mesh-member-address", "mesh-cluster"})
"""The attribs that read the mark."""


class MemberState(StrEnum):
    """The state of a member, as the mesh sees it."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"
    """It said goodbye."""
    GONE = "gone"
    """The mesh no longer knows it: it was removed, or it is long dead."""


LIVE = frozenset({MemberState.ALIVE, MemberState.SUSPECT})
BELONGS = LIVE | {MemberState.DEAD}
"""A dead member is expected back; one that left is none any more."""


@dataclass(frozen=True)
class Member:
    """A member of the mesh."""

    name: str
    state: MemberState
    address: str
    """Host and port of its agent."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """The state of each health check: `passing`, `failing`, or `unknown` until it has run once."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why checks fail."""

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")


@dataclass(frozen=True)
class MeshView:
    """The mesh as one server sees it, at one moment."""

    cluster: str
    """The fingerprint of its CA."""
    members: tuple[Member, ...]
    voters: frozenset[str] | None = None
    """The members that hold the datastore; None: it does not answer, so they are not known."""


@dataclass(frozen=True)
class KnownNode:
    """A node, with what tells whether it is a member."""

    id: int
    name: str
    mark: JsonObject = field(default_factory=dict)


class MemberDirectory:
    """Finds the node of each member.

    It is the node that the member was before, else the node with its full name, else the only node with its short name
    that is no other member.
    """

    def __init__(self, nodes: Iterable[KnownNode], cluster: str) -> None:
        self.marked: dict[str, KnownNode] = {}
        self._named: dict[str, KnownNode] = {}
        self._short: dict[str, list[KnownNode]] = {}
        for node in nodes:
            member = node.mark.get("member")
            if node.mark.get("cluster") == cluster and isinstance(member, str):
                self.marked[member] = node
                continue
            self._named[node.name] = node
            self._short.setdefault(node.name.partition(".")[0], []).append(node)

    def find(self, member: str) -> KnownNode | None:
        if member in self.marked:
            return self.marked[member]
        lowered = member.lower()
        if lowered in self._named:
            return self._named[lowered]
        short = self._short.get(lowered, [])
        return short[0] if len(short) == 1 else None


def new_node_name(member: str) -> str:
    """Return the name of a node that is created for a member; raise Invalid if the member's name makes none."""
    plain = member.lower().replace("_", "-")
    return check_node_name(plain if "." in plain else f"{plain}.{DOMAIN}")


def member_mark(view: MeshView, member: Member, *, made: bool) -> JsonObject:
    """Return the mark of a member's node.

    `made`: the node was created for the member and is known by the mesh alone, which says whether it is alive.
    """
    mark: JsonObject = {"cluster": view.cluster, "member": member.name, "state": member.state.value, "made": made}
    # The mesh tells no address of a member that is gone; the one in the mark of before stays.
    address: JsonObject = {"address": member.address} if member.address else {}
    return {**mark, **address}


def failing_checks(before: JsonObject, member: Member) -> dict[str, str]:
    """Return the checks that fail on a member, each with the reason; `before` is the mark of its node until now.

    A member that has just started knows nothing yet, and a dead one reports nothing: what was known stays.
    """
    marked = before.get("failing")
    known = {name: str(why) for name, why in marked.items()} if isinstance(marked, dict) else {}
    if member.state not in LIVE or not member.checks:
        return known
    failing = {name: member.reasons.get(name, "") for name, status in member.checks.items() if status == "failing"}
    return failing | {name: why for name, why in known.items() if member.checks.get(name) == "unknown"}


def member_events(before: JsonObject, mark: JsonObject) -> list[tuple[str, JsonObject]]:
    """Return the events about the changes between two marks of a member, as kind and data.

    A member that is only suspected is no event yet.
    """
    member: JsonObject = {"member": mark["member"]}
    old_state, new_state = _event_state(before.get("state")), _event_state(mark["state"])
    events: list[tuple[str, JsonObject]] = []
    if new_state != old_state:
        kind = "joined" if old_state is None and new_state == MemberState.ALIVE else new_state
        events.append((f"mesh.member_{kind}", member))
    old, failing = before.get("failing"), mark["failing"]
    assert isinstance(failing, dict)
    failed = old if isinstance(old, dict) else {}
    events += [
        ("mesh.check_failing", {**member, "check": name, "why": failing[name]})
        for name in sorted(failing.keys() - failed)
    ]
    events += [("mesh.check_passing", {**member, "check": name}) for name in sorted(failed.keys() - failing)]
    return events


def _event_state(state: object) -> object:
    return MemberState.ALIVE.value if state == MemberState.SUSPECT else state
