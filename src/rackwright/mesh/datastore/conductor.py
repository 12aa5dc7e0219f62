"""The conductor keeps the datastore at its full number of servers: it observes etcd and the members, and acts.

What to do is decided by `takeover.py`. Every datastore server observes; only the one that holds the lock acts, one
change at a time, and only after it has made sure that it still holds the lock.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.mesh.datastore import cluster_config, etcd_members
from rackwright.mesh.datastore.cluster_config import apply_overrides
from rackwright.mesh.datastore.datastore_gossip import Part, hint_of, peer_url
from rackwright.mesh.datastore.etcd_members import EtcdMember
from rackwright.mesh.datastore.local_datastore import Datastore
from rackwright.mesh.datastore.lock import Lock, clock
from rackwright.mesh.datastore.takeover import (
    Add,
    Candidate,
    Condition,
    DatastoreView,
    JudgedMember,
    Promote,
    Remove,
    Takeover,
    TakeoverStep,
    Wait,
)
from rackwright.mesh.errors import Fenced, NoDatastore, Rejected
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import LIVE, Entry, State
from rackwright.mesh.membership.member_view import MemberView
from rackwright.mesh.runs.run_store import RunStore
from rackwright.mesh.supervision import Spawner

LOCK_KEY = "/rackwright/datastore/conductor"
EVERY_SECONDS = 1.0
SOON_SECONDS = 0.25
"""The pause while a learner learns, or the datastore has no leader: that does not take long."""
CHANGED_SECONDS = 0.02
"""The pause after a change, before the next step of the same takeover."""
ROLE_PREFIX = "role/"
DOMAIN_LABEL = "domain"


@dataclass(frozen=True)
class ConductorPorts:
    """What the conductor uses of its agent."""

    name: str
    datastore: Datastore
    store: RunStore
    """Where its changes are recorded as events of the cluster"""
    members: MemberView
    revocations: RevocationFile
    send_look: Callable[[str], None]
    """Tells another member that something in the datastore concerns it"""
    spawner: Spawner
    log: Log


class Conductor:
    """Observes and changes the datastore on behalf of one server."""

    def __init__(self, ports: ConductorPorts) -> None:
        self._ports, self._members = ports, ports.members
        self.datastore, self.etcd = ports.datastore, ports.datastore.etcd
        config = ports.datastore.config
        self.takeover = Takeover(config.count, config.grace, config.learner_seconds)
        self.lock = Lock(self.etcd, LOCK_KEY, ports.name, config.lease_seconds)
        self.reason = "not looked yet"
        self._etcd_members: dict[str, EtcdMember] = {}

    async def run(self) -> None:
        """Run until cancelled. While this server is no healthy voter, nothing is done at all."""
        try:
            while True:
                pause = EVERY_SECONDS
                if self.datastore.is_voter():
                    try:
                        pause = await self._turn()
                    except (NoDatastore, Rejected, Fenced) as problem:
                        self.reason = str(problem)
                        pause = SOON_SECONDS
                await asyncio.sleep(pause)
        finally:
            await self.lock.release()

    async def owner(self) -> str:
        """Return the name of the server that conducts; empty if none does."""
        return await self.lock.read_owner()

    async def _turn(self) -> float:
        """Observe, decide and act once; return the pause until the next time."""
        await self._follow_config()
        view = await self.observe()
        step = self.takeover.decide(clock(), view)
        if not await self.lock.hold():
            self.reason = "another server conducts"
            return EVERY_SECONDS
        await self._act(step)
        if isinstance(step, Wait):
            # No longer than the grace period requires.
            return min(EVERY_SECONDS, self.takeover.grace_left(clock()) + CHANGED_SECONDS)
        return SOON_SECONDS if isinstance(step, Promote) else CHANGED_SECONDS

    async def _follow_config(self) -> None:
        """Apply the cluster's settings, which override those in this server's file."""
        config = apply_overrides(self.datastore.config, await cluster_config.read_settings(self.etcd, deadline=2.0))
        self.takeover.count, self.takeover.grace = config.count, config.grace
        self.takeover.learner_seconds = config.learner_seconds

    # Observing

    async def observe(self) -> DatastoreView:
        """Return the datastore as it is now."""
        members = await etcd_members.members(self.etcd)
        servers = dict(self._servers())
        reached: set[int] | None = None
        judged_members = []
        conditions = await asyncio.gather(
            *(self._obvious_condition(member, servers.get(member.peer_url)) for member in members)
        )
        for member, obvious in zip(members, conditions, strict=True):
            entry, condition = servers.get(member.peer_url), obvious
            if condition is None:
                reached = await self._reached_by_leader(members) if reached is None else reached
                condition = await self._confirmed_condition(member, reached)
            judged_members.append(JudgedMember(member.id, self._server(member, entry), condition, member.learner))
        datastore_urls = {member.peer_url for member in members}
        candidates = tuple(
            _candidate(entry)
            for url, entry in servers.items()
            if url not in datastore_urls and self._is_candidate(entry)
        )
        domains = {member.server: self._domain(member.server) for member in judged_members}
        self._etcd_members = {self._server(member, servers.get(member.peer_url)): member for member in members}
        return DatastoreView(tuple(judged_members), candidates, domains)

    def _servers(self) -> list[tuple[str, Entry]]:
        """Return the servers that have an etcd or could have one, with its peer URL."""
        entries = list(self._members.members())
        return [(peer_url(entry.record, hint), entry) for entry in entries if (hint := hint_of(entry.record)).peer_port]

    @staticmethod
    def _server(member: EtcdMember, entry: Entry | None) -> str:
        """Return the name of a member's server."""
        return entry.name if entry else member.name or member.peer_url

    async def _obvious_condition(self, member: EtcdMember, entry: Entry | None) -> Condition | None:
        """Return the condition of a member, if that is plain; None if etcd's leader has to be asked as well."""
        if entry is None:
            removed = member.name in self._ports.revocations.current.names
            return Condition.REMOVED if removed else None
        hint = hint_of(entry.record)
        if entry.state in LIVE and hint.part is not Part.FAILING:
            if hint.part not in (Part.VOTER, Part.LEARNER) or not member.client_url:
                return Condition.DOUBTFUL
            if member.learner:
                # A learner cannot answer for the datastore yet, and to wait for that would only delay its promotion.
                return Condition.WELL
            if entry.state is State.ALIVE and await etcd_members.is_healthy(self.etcd, member.client_url):
                return Condition.WELL
            return Condition.DOUBTFUL
        return None

    async def _confirmed_condition(self, member: EtcdMember, reached: set[int]) -> Condition:
        """Return the condition of a member that is dead to SWIM.

        It is lost only if etcd's leader has lost it too, and it does not answer itself.
        """
        if member.id in reached:
            return Condition.DOUBTFUL
        if member.client_url and await etcd_members.is_healthy(self.etcd, member.client_url):
            return Condition.DOUBTFUL
        return Condition.LOST

    async def _reached_by_leader(self, members: list[EtcdMember]) -> set[int]:
        """Return the members that etcd's leader reaches. Without a leader that answers, no member counts as lost."""
        status = await etcd_members.status(self.etcd, self.datastore.process.client_url)
        leader = next((member for member in members if member.id == status.leader), None)
        if leader is None or not leader.client_url:
            raise NoDatastore("etcd has no leader at this moment")
        return await etcd_members.connected_peers(self.etcd, leader.client_url) | {leader.id}

    def _is_candidate(self, entry: Entry) -> bool:
        hint = hint_of(entry.record)
        return entry.state is State.ALIVE and hint.eligible and hint.part is Part.NONE and hint.era == self._era

    @property
    def _era(self) -> int:
        return self.datastore.state.era

    def _domain(self, server: str) -> str:
        entry = self._members.member(server)
        return dict(entry.record.labels).get(DOMAIN_LABEL, "") if entry else ""

    # Acting

    async def _act(self, step: TakeoverStep) -> None:
        endpoint = self.datastore.process.client_url
        if isinstance(step, Wait):
            self.reason = step.reason
            return
        await self.lock.check()
        if isinstance(step, Remove):
            await etcd_members.remove(self.etcd, endpoint, step.member.id)
            self._record_change("member_removed", step.member.server, step.reason)
        elif isinstance(step, Add):
            entry = self._members.member(step.server)
            if entry is None:
                return
            await etcd_members.add_learner(self.etcd, endpoint, peer_url(entry.record, hint_of(entry.record)))
            self._record_change("learner_added", step.server, step.reason)
            self._notify(step.server)
        else:
            await self._promote(step, endpoint)

    async def _promote(self, step: Promote, endpoint: str) -> None:
        server = step.member.server
        try:
            await etcd_members.promote(self.etcd, endpoint, step.member.id)
        except (Rejected, NoDatastore) as problem:
            # Not in step with the leader yet, or not started: notified again that it is to be a datastore.
            self.reason = f"{server} learns: {problem}"
            self._notify(server)
            return
        self._record_change("learner_promoted", server, "it has caught up")
        self._notify(server)

    def _notify(self, server: str) -> None:
        """Tell a server, which may be this one, that a change in the member list concerns it."""
        if server == self._ports.name:
            self.datastore.wake()
        else:
            self._ports.send_look(server)

    def _record_change(self, what: str, server: str, reason: str) -> None:
        """Log a change, and record it as an event of the cluster."""
        self.reason = f"{what} {server}: {reason}"
        self._ports.log.warning(f"datastore_{what}", member=server, why=reason)
        recording = self._ports.store.publish_cluster_event(
            self._ports.name, f"datastore_{what}", member=server, why=reason
        )
        self._ports.spawner.once("events", recording)


def _candidate(entry: Entry) -> Candidate:
    labels = dict(entry.record.labels)
    roles = sum(key.startswith(ROLE_PREFIX) for key in labels)
    return Candidate(entry.name, roles, labels.get(DOMAIN_LABEL, ""))
