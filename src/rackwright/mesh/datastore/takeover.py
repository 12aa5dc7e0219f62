"""Who takes over the datastore, decided: a pure state machine over what was seen, with no I/O and no clock of its own.

It is fed a `View` at a time and answers with the one change to make now, or with the reason for making none. The order
is etcd's: remove the dead member, add the chosen server as learner, promote it when it has caught up. Looking and doing
are `conductor.py`.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

RETRY_SECONDS = 120.0
"""How long a server that failed to become a datastore is passed over, unless nobody else is left."""
FEWEST_FOR_FAULT_TOLERANCE = 3


class Condition(enum.Enum):
    """How a server is, as its etcd and its agent tell."""

    WELL = "well"
    LOST = "lost"  # dead to SWIM (or its own agent says that etcd fails), lost to etcd's leader, and silent
    DOUBTFUL = "doubtful"  # some of that, not all: nothing is done about it
    REMOVED = "removed"  # shut out of the cluster by a person


@dataclass(frozen=True, slots=True)
class Voice:
    """One member of etcd with the server it runs on."""

    member: int
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
class View:
    voices: tuple[Voice, ...]
    candidates: tuple[Candidate, ...]
    domains: Mapping[str, str] = field(default_factory=dict)
    """server -> failure domain, of those that are datastores"""


@dataclass(frozen=True, slots=True)
class Wait:
    reason: str


@dataclass(frozen=True, slots=True)
class Remove:
    voice: Voice
    reason: str


@dataclass(frozen=True, slots=True)
class Add:
    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    voice: Voice


Decision = Wait | Remove | Add | Promote


class Takeover:
    """Remembers since when a member is lost and since when a learner learns, and whom it has tried in vain."""

    def __init__(self, count: int, grace: float, learner_seconds: float) -> None:
        self.count, self.grace, self.learner_seconds = count, grace, learner_seconds
        self._lost: dict[int, float] = {}
        self._learning: dict[int, float] = {}
        self._failed: dict[str, float] = {}

    def decide(self, now: float, view: View) -> Decision:
        self._remember(now, view)
        voters = [voice for voice in view.voices if not voice.learner]
        well = [voice for voice in voters if voice.condition is not Condition.LOST]
        if len(well) < quorum(len(voters)):
            return Wait(f"quorum lost: {len(well)} of {len(voters)} voters are left")
        learner = next((voice for voice in view.voices if voice.learner), None)
        if learner is not None:
            return self._teach(now, learner)
        return self._replace(now, view, voters) or self._grow(view, voters)

    def seconds_lost(self, now: float, member: int) -> float:
        return now - self._lost.get(member, now)

    def grace_left(self, now: float) -> float:
        """Seconds until the next member has been lost for the whole grace period; infinity if none is about to be."""
        left = (self.grace - (now - since) for since in self._lost.values())
        return min((seconds for seconds in left if seconds > 0), default=math.inf)

    def _remember(self, now: float, view: View) -> None:
        lost = {voice.member for voice in view.voices if voice.condition is Condition.LOST}
        # Whoever is back for one look starts anew: a grace period is one of uninterrupted absence.
        self._lost = {member: self._lost.get(member, now) for member in lost}
        learning = {voice.member for voice in view.voices if voice.learner}
        self._learning = {member: self._learning.get(member, now) for member in learning}
        self._failed = {server: at for server, at in self._failed.items() if now - at < RETRY_SECONDS}

    def _teach(self, now: float, learner: Voice) -> Decision:
        """A learner is there: promote it, or give it up. Nothing else is changed meanwhile."""
        taken = now - self._learning[learner.member]
        if learner.condition is Condition.REMOVED:
            return self._give_up(now, learner, "it was removed from the cluster")
        if learner.condition is Condition.LOST and taken > min(self.grace, self.learner_seconds) / 2:
            return self._give_up(now, learner, "it died before it had caught up")
        if taken > self.learner_seconds:
            return self._give_up(now, learner, f"it has not caught up in {self.learner_seconds:g} s")
        return Promote(learner)

    def _give_up(self, now: float, learner: Voice, reason: str) -> Decision:
        self._failed[learner.server] = now
        return Remove(learner, reason)

    def _replace(self, now: float, view: View, voters: list[Voice]) -> Decision | None:
        gone = [voice for voice in voters if self._is_gone(now, voice)]
        if not gone:
            return None
        voice = min(gone, key=lambda voice: (self._lost.get(voice.member, 0.0), voice.server))
        rest = [other for other in voters if other is not voice]
        well = [other for other in rest if other.condition is Condition.WELL]
        if not rest or len(well) < quorum(len(rest)):
            return Wait(f"{voice.server} is gone, but without it there would be no quorum of healthy ones")
        if voice.condition is Condition.REMOVED:
            return Remove(voice, "it was removed from the cluster")
        if self._choose(view, voice.server) is None:
            # Taking its vote away would make nothing safer, and it may come back.
            return Wait(f"{voice.server} is gone, and no eligible server is there to take over")
        return Remove(voice, f"gone for {self.seconds_lost(now, voice.member):.0f} s")

    def _is_gone(self, now: float, voice: Voice) -> bool:
        if voice.condition is Condition.REMOVED:
            return True
        return voice.condition is Condition.LOST and self.seconds_lost(now, voice.member) >= self.grace

    def _grow(self, view: View, voters: list[Voice]) -> Decision:
        if len(voters) == self.count:
            return Wait("complete")
        if len(voters) > self.count and all(voice.condition is Condition.WELL for voice in voters):
            return Remove(max(voters, key=lambda voice: voice.server), f"{len(voters)}, and {self.count} are wanted")
        if any(voice.condition is not Condition.WELL for voice in voters):
            return Wait("one of the datastore servers is not well; it is not a time to add another")
        chosen = self._choose(view, "")
        reach = len(voters) + len(view.candidates)
        if chosen is None:
            return Wait(f"{len(voters)} of {self.count}, and no eligible server to add")
        if len(voters) == 1 and reach < FEWEST_FOR_FAULT_TOLERANCE:
            # Two would stop when either of them does.
            return Wait("two datastore servers are worse than one; waiting for a third eligible server")
        return Add(chosen.server, f"{len(voters)} of {self.count}")

    def _choose(self, view: View, without: str) -> Candidate | None:
        """Fewest roles, then a failure domain where no datastore is yet, then by name.

        Who failed lately comes last, and of those the one that failed first: so all of them are tried in turn.
        """
        used = {domain for server, domain in view.domains.items() if domain and server != without}

        def rank(candidate: Candidate) -> tuple[float, int, bool, str]:
            failed = self._failed.get(candidate.server, -math.inf)
            return failed, candidate.roles, candidate.domain in used, candidate.server

        return min((one for one in view.candidates if one.server != without), key=rank, default=None)


def quorum(voters: int) -> int:
    return voters // 2 + 1
