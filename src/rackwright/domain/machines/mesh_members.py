"""Members of a mesh as the control plane sees them: which nodes they are, and what is said of those.

Values and rules only. Who is a member is decided by the mesh; here is what that means for nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.names import check_node_name

MARK = "mesh"
"""Below this, in what is known of a node, is what the mesh says of it."""
DOMAIN = "mesh.internal"
"""Of nodes that are known by nothing but their short name in the mesh."""
MEMBER_ROLE = "mesh-member"
DATASTORE_ROLE = "mesh-datastore"
ATTRIBS = frozenset({"mesh-member-name", "mesh-member-state", "mesh-member-address", "mesh-cluster"})
"""The attribs of the mark."""


class MemberState(StrEnum):
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
    name: str
    state: MemberState
    address: str
    """Host and port of its agent."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """How its software is: `passing`, `failing`, or `unknown` until a check has come to an end."""
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
    """Who holds the datastore; None: it does not answer, so nobody can say."""


@dataclass(frozen=True)
class KnownNode:
    """What is looked at to tell whether a node is a member."""

    id: int
    name: str
    mark: JsonObject = field(default_factory=dict)


class Directory:
    """Which node each member is: the one it was before, else that of its full name, else the only one of its short name
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
    """What a node is called that is made for a member. Raises Invalid where none can be made of it."""
    plain = member.lower().replace("_", "-")
    return check_node_name(plain if "." in plain else f"{plain}.{DOMAIN}")


def mark_of(view: MeshView, member: Member, *, made: bool) -> JsonObject:
    """What is said of a member's node. `made`: the node is known by the mesh alone, which says whether it is alive."""
    said: JsonObject = {"cluster": view.cluster, "member": member.name, "state": member.state.value, "made": made}
    # Of one that is gone nothing more is heard; where it was stays known.
    where: JsonObject = {"address": member.address} if member.address else {}
    return {**said, **where}


def failing_checks(before: JsonObject, member: Member) -> dict[str, str]:
    """The checks that fail on a member, each with the reason, after what was said of its node before.

    One that has just started knows nothing yet, and of one that is dead nothing is heard: what was known stands.
    """
    held = before.get("failing")
    known = {name: str(why) for name, why in held.items()} if isinstance(held, dict) else {}
    if member.state not in LIVE or not member.checks:
        return known
    failing = {name: member.reasons.get(name, "") for name, status in member.checks.items() if status == "failing"}
    return failing | {name: why for name, why in known.items() if member.checks.get(name) == "unknown"}


def member_events(before: JsonObject, mark: JsonObject) -> list[tuple[str, JsonObject]]:
    """The events that tell what has changed of a member, as kind and data.

    One that is only suspected is no news yet.
    """
    member: JsonObject = {"member": mark["member"]}
    was, now = _told_state(before.get("state")), _told_state(mark["state"])
    events: list[tuple[str, JsonObject]] = []
    if now != was:
        kind = "joined" if was is None and now == MemberState.ALIVE else now
        events.append((f"mesh.member_{kind}", member))
    old, new = before.get("failing"), mark["failing"]
    assert isinstance(new, dict)
    failed = old if isinstance(old, dict) else {}
    events += [
        ("mesh.check_failing", {**member, "check": name, "why": new[name]}) for name in sorted(new.keys() - failed)
    ]
    events += [("mesh.check_passing", {**member, "check": name}) for name in sorted(failed.keys() - new)]
    return events


def _told_state(state: object) -> object:
    return MemberState.ALIVE.value if state == MemberState.SUSPECT else state
