"""Decides which server takes over the datastore: a pure state machine, with no I/O and no clock of its own.

It takes one `DatastoreView` at a time and answers with the one change to make now, or with the reason for making none.
The order is etcd's: remove the dead member, add the chosen server as learner, promote it when it has caught up.
Observing and acting are in `conductor.py`.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

RETRY_SECONDS = 120.0
"""How long a server that failed to become a datastore is passed over, unless no other is left."""
FEWEST_FOR_FAULT_TOLERANCE = 3


class Condition(enum.Enum):
    """The condition of a datastore server, judged by its etcd and its agent."""

    WELL = "well"
    LOST = "lost"  # dead to SWIM (or its own agent says that etcd fails), lost to etcd's leader, and silent
    DOUBTFUL = "doubtful"  # some of that, not all: nothing is done about it
    REMOVED = "removed"  # shut out of the cluster by a person


@dataclass(frozen=True, slots=True)
class JudgedMember:
    """A member of etcd with the server it runs on, and its condition."""

    id: int
    server: str
    condition: Condition
    learner: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A living server that could become a datastore."""

    server: str
    roles: int = 0
    domain: str = ""


@dataclass(frozen=True, slots=True)
class DatastoreView:
    """The datastore as it was observed at one time."""

    members: tuple[JudgedMember, ...]
    candidates: tuple[Candidate, ...]
    domains: Mapping[str, str] = field(default_factory=dict)
    """server -> failure domain, of those that are datastores"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Change nothing now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a member from etcd."""

    member: JudgedMember
    reason: str


@dataclass(frozen=True, slots=True)
class Add:
    """Add a server to etcd as a learner."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Make a learner a voter, if it has caught up."""

    member: JudgedMember


TakeoverStep = Wait | Remove | Add | Promote


class Takeover:
    """The state machine.

    It remembers since when a member is lost and since when a learner learns, and which servers failed to catch up.
    """

    def __init__(self, count: int, grace: float, learner_seconds: float) -> None:
        self.count, self.grace, self.learner_seconds = count, grace, learner_seconds
        self._lost: dict[int, float] = {}
        self._learning: dict[int, float] = {}
        self._failed: dict[str, float] = {}

    def decide(self, now: float, view: DatastoreView) -> TakeoverStep:
        """Return the step to take now."""
        self._remember(now, view)
        voters = [member for member in view.members if not member.learner]
        well = [member for member in voters if member.condition is not Condition.LOST]
        if len(well) < quorum(len(voters)):
            return Wait(f"quorum lost: {len(well)} of {len(voters)} voters are left")
        learner = next((member for member in view.members if member.learner), None)
        if learner is not None:
            return self._handle_learner(now, learner)
        return self._replace(now, view, voters) or self._grow(view, voters)

    def seconds_lost(self, now: float, id: int) -> float:
        """Return for how long a member has been lost."""
        return now - self._lost.get(id, now)

    def grace_left(self, now: float) -> float:
        """Return the seconds until the next member has been lost for the whole grace period; infinity if none will
        be."""
        left = (self.grace - (now - since) for since in self._lost.values())
        return min((seconds for seconds in left if seconds > 0), default=math.inf)

    def _remember(self, now: float, view: DatastoreView) -> None:
        lost = {member.id for member in view.members if member.condition is Condition.LOST}
        # A member that is back in one view starts anew: a grace period is one of uninterrupted absence.
        self._lost = {id: self._lost.get(id, now) for id in lost}
        learning = {member.id for member in view.members if member.learner}
        self._learning = {id: self._learning.get(id, now) for id in learning}
        self._failed = {server: at for server, at in self._failed.items() if now - at < RETRY_SECONDS}

    def _handle_learner(self, now: float, learner: JudgedMember) -> TakeoverStep:
        """Promote the learner, or give it up. Nothing else is changed while there is one."""
        seconds = now - self._learning[learner.id]
        if learner.condition is Condition.REMOVED:
            return self._give_up(now, learner, "it was removed from the cluster")
        if learner.condition is Condition.LOST and seconds > min(self.grace, self.learner_seconds) / 2:
            return self._give_up(now, learner, "it died before it had caught up")
        if seconds > self.learner_seconds:
            return self._give_up(now, learner, f"it has not caught up in {self.learner_seconds:g} s")
        return Promote(learner)

    def _give_up(self, now: float, learner: JudgedMember, reason: str) -> TakeoverStep:
        self._failed[learner.server] = now
        return Remove(learner, reason)

    def _replace(self, now: float, view: DatastoreView, voters: list[JudgedMember]) -> TakeoverStep | None:
        """Remove the voter that is gone for longest, if another can take its place; None if none is gone."""
        gone = [member for member in voters if self._is_gone(now, member)]
        if not gone:
            return None
        member = min(gone, key=lambda member: (self._lost.get(member.id, 0.0), member.server))
        others = [other for other in voters if other is not member]
        well = [other for other in others if other.condition is Condition.WELL]
        if not others or len(well) < quorum(len(others)):
            return Wait(f"{member.server} is gone, but without it there would be no quorum of healthy ones")
        if member.condition is Condition.REMOVED:
            return Remove(member, "it was removed from the cluster")
        if self._choose(view, member.server) is None:
            # To remove its vote would make nothing safer, and it may come back.
            return Wait(f"{member.server} is gone, and no eligible server is there to take over")
        return Remove(member, f"gone for {self.seconds_lost(now, member.id):.0f} s")

    def _is_gone(self, now: float, member: JudgedMember) -> bool:
        if member.condition is Condition.REMOVED:
            return True
        return member.condition is Condition.LOST and self.seconds_lost(now, member.id) >= self.grace

    def _grow(self, view: DatastoreView, voters: list[JudgedMember]) -> TakeoverStep:
        """Bring the number of voters to the one that is configured."""
        if len(voters) == self.count:
            return Wait("complete")
        if len(voters) > self.count and all(member.condition is Condition.WELL for member in voters):
            return Remove(max(voters, key=lambda member: member.server), f"{len(voters)}, and {self.count} are wanted")
        if any(member.condition is not Condition.WELL for member in voters):
            return Wait("one of the datastore servers is not well; it is not a time to add another")
        chosen = self._choose(view, "")
        possible = len(voters) + len(view.candidates)
        if chosen is None:
            return Wait(f"{len(voters)} of {self.count}, and no eligible server to add")
        if len(voters) == 1 and possible < FEWEST_FOR_FAULT_TOLERANCE:
            # Two would stop when either of them stops.
            return Wait("two datastore servers are worse than one; waiting for a third eligible server")
        return Add(chosen.server, f"{len(voters)} of {self.count}")

    def _choose(self, view: DatastoreView, without: str) -> Candidate | None:
        """Return the best candidate: with the fewest roles, then in a failure domain without a datastore, then by name.

        Those that failed lately come last, and of them the one that failed first: so all of them are tried in turn.
        """
        used = {domain for server, domain in view.domains.items() if domain and server != without}

        def rank(candidate: Candidate) -> tuple[float, int, bool, str]:
            failed = self._failed.get(candidate.server, -math.inf)
            return failed, candidate.roles, candidate.domain in used, candidate.server

        return min((candidate for candidate in view.candidates if candidate.server != without), key=rank, default=None)


def quorum(voters: int) -> int:
    """Return how many of so many voters are a majority."""
    return voters // 2 + 1
