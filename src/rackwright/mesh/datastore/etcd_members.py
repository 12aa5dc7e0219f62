"""The members of etcd, read from etcd itself, and the changes of membership that it allows.

What to change is decided in `takeover.py`.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any

from rackwright.mesh.datastore.etcd_client import Etcd, readable, text64
from rackwright.mesh.errors import NoDatastore, Rejected

FIRST_SECONDS = 0.5
CHANGE_SECONDS = 2.0
LOOK_SECONDS = 1.0
_ACTIVE = re.compile(r'^etcd_network_active_peers\{Local="[0-9a-f]+",Remote="([0-9a-f]+)"\} ([0-9.e+]+)$', re.M)


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """A member of etcd, as its member list has it."""

    id: int
    peer_url: str
    client_url: str = ""
    learner: bool = False
    name: str = ""
    """Empty until the member has started for the first time."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member reports of itself: its id, the leader it knows, the term, and the size of its data."""

    id: int
    leader: int
    term: int
    bytes: int


async def members(etcd: Etcd, deadline: float = 3.0) -> list[EtcdMember]:
    """Return the members, no staler than this call.

    etcd 3.4 answers with the list that the asked member happens to have; a read through the leader at the same member
    first makes that at least as new as now.
    """
    problem: Exception = NoDatastore("none of its servers is known here yet")
    # A member that had no leader when it was asked stays silent for seconds, also when it has one again: ask anew soon.
    for seconds, endpoint in itertools.product((FIRST_SECONDS, deadline), etcd.endpoints()):
        try:
            await etcd.call_at(endpoint, "/v3/kv/range", {"key": text64("rackwright"), "count_only": True}, seconds)
            answer = await etcd.call_at(endpoint, "/v3/cluster/member/list", {}, seconds)
        except (NoDatastore, Rejected) as error:
            problem = error
            continue
        return _read_members(answer)
    raise NoDatastore(f"no datastore server answers for all of them: {problem}")


async def members_at(etcd: Etcd, endpoint: str) -> list[EtcdMember]:
    """Return the members as one of them knows them: perhaps stale, for showing only."""
    answer = await etcd.call_at(endpoint, "/v3/cluster/member/list", {}, LOOK_SECONDS)
    return _read_members(answer)


async def status(etcd: Etcd, endpoint: str, seconds: float = LOOK_SECONDS) -> MemberStatus:
    """Return the status of the member at an endpoint."""
    answer = await etcd.call_at(endpoint, "/v3/maintenance/status", {}, seconds)
    with readable(f"what {endpoint} says of itself"):
        return MemberStatus(
            int(answer["header"]["member_id"]),
            int(answer.get("leader", 0)),
            int(answer.get("raftTerm", 0)),
            int(answer.get("dbSizeInUse", 0)),
        )


async def is_healthy(etcd: Etcd, endpoint: str, seconds: float = LOOK_SECONDS) -> bool:
    """Whether the member at an endpoint reports that it can write."""
    try:
        return '"true"' in await etcd.fetch(endpoint, "/health", seconds)
    except NoDatastore:
        return False


async def connected_peers(etcd: Etcd, endpoint: str) -> set[int]:
    """Return the peers to which the member at an endpoint has a working connection."""
    text = await etcd.fetch(endpoint, "/metrics")
    with readable(f"the metrics of {endpoint}"):
        return {int(id, 16) for id, active in _ACTIVE.findall(text) if float(active) > 0}


async def add_learner(etcd: Etcd, endpoint: str, peer_url: str) -> int:
    """Add a learner; return the id of the new member."""
    answer = await etcd.call_at(
        endpoint, "/v3/cluster/member/add", {"peerURLs": [peer_url], "isLearner": True}, CHANGE_SECONDS
    )
    with readable(f"the answer of {endpoint}"):
        return int(answer["member"]["ID"])


async def promote(etcd: Etcd, endpoint: str, member: int) -> None:
    await etcd.call_at(endpoint, "/v3/cluster/member/promote", {"ID": str(member)}, CHANGE_SECONDS)


async def remove(etcd: Etcd, endpoint: str, member: int) -> None:
    await etcd.call_at(endpoint, "/v3/cluster/member/remove", {"ID": str(member)}, CHANGE_SECONDS)


def _read_members(answer: dict[str, Any]) -> list[EtcdMember]:
    with readable("the list of the datastore's members"):
        return [_read_member(entry) for entry in answer.get("members", ())]


def _read_member(entry: dict[str, Any]) -> EtcdMember:
    return EtcdMember(
        int(entry["ID"]),
        str(next(iter(entry.get("peerURLs", ())), "")),
        str(next(iter(entry.get("clientURLs", ())), "")),
        bool(entry.get("isLearner")),
        str(entry.get("name", "")),
    )
