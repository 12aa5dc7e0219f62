"""Keeps the datastore at its strength: looks at etcd and at the members, asks `takeover.py` what to do, and does it.

Every datastore server looks; only the one that holds the lock acts, one change at a time, and only after it has made
sure that it still holds the lock.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.mesh.datastore import cluster_config, etcd_members
from rackwright.mesh.datastore.cluster_config import overridden
from rackwright.mesh.datastore.datastore_gossip import Part, hint_of, peer_url
from rackwright.mesh.datastore.etcd_members import EtcdMember
from rackwright.mesh.datastore.local_datastore import Datastore
from rackwright.mesh.datastore.lock import Lock, clock
from rackwright.mesh.datastore.takeover import (
    Add,
    Candidate,
    Condition,
    Decision,
    Promote,
    Remove,
    Takeover,
    View,
    Voice,
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
"""While a learner learns, or the datastore has no leader: that does not take long."""
CHANGED_SECONDS = 0.02
"""After a change, before the next step of the same takeover."""
ROLE_PREFIX = "role/"
DOMAIN_LABEL = "domain"


@dataclass(frozen=True)
class ConductorPorts:
    """What the conductor uses of its agent."""

    name: str
    datastore: Datastore
    store: RunStore
    """Where its changes are told as events of the cluster"""
    members: MemberView
    revocations: RevocationFile
    send_look: Callable[[str], None]
    """Tells another member that there is news for it in the datastore"""
    spawner: Spawner
    log: Log


class Conductor:
    def __init__(self, ports: ConductorPorts) -> None:
        self._ports, self._members = ports, ports.members
        self.datastore, self.etcd = ports.datastore, ports.datastore.etcd
        config = ports.datastore.config
        self.takeover = Takeover(config.count, config.grace, config.learner_seconds)
        self.lock = Lock(self.etcd, LOCK_KEY, ports.name, config.lease_seconds)
        self.reason = "not looked yet"
        self._known: dict[str, EtcdMember] = {}

    async def run(self) -> None:
        """Until cancelled. While this server is no healthy voter it does nothing at all."""
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
        return await self.lock.owner_now()

    async def _turn(self) -> float:
        await self._follow_config()
        view = await self.look()
        decision = self.takeover.decide(clock(), view)
        if not await self.lock.hold():
            self.reason = "another server conducts"
            return EVERY_SECONDS
        await self._act(decision)
        if isinstance(decision, Wait):
            # Not a second longer than the grace period asks for.
            return min(EVERY_SECONDS, self.takeover.grace_left(clock()) + CHANGED_SECONDS)
        return SOON_SECONDS if isinstance(decision, Promote) else CHANGED_SECONDS

    async def _follow_config(self) -> None:
        """What the cluster has set counts before what this server's file says."""
        config = overridden(self.datastore.config, await cluster_config.read(self.etcd, deadline=2.0))
        self.takeover.count, self.takeover.grace = config.count, config.grace
        self.takeover.learner_seconds = config.learner_seconds

    # Looking

    async def look(self) -> View:
        members = await etcd_members.members(self.etcd)
        servers = dict(self._servers())
        heard: set[int] | None = None
        voices = []
        glances = await asyncio.gather(*(self._at_a_glance(one, servers.get(one.peer_url)) for one in members))
        for member, glance in zip(members, glances, strict=True):
            entry, condition = servers.get(member.peer_url), glance
            if condition is None:
                heard = await self._heard(members) if heard is None else heard
                condition = await self._second_look(member, heard)
            voices.append(Voice(member.id, self._server(member, entry), condition, member.learner))
        taken = {member.peer_url for member in members}
        candidates = tuple(
            _candidate(entry) for url, entry in servers.items() if url not in taken and self._may_become_one(entry)
        )
        domains = {voice.server: self._domain(voice.server) for voice in voices}
        self._known = {self._server(member, servers.get(member.peer_url)): member for member in members}
        return View(tuple(voices), candidates, domains)

    def _servers(self) -> list[tuple[str, Entry]]:
        entries = list(self._members.members())
        return [(peer_url(entry.record, hint), entry) for entry in entries if (hint := hint_of(entry.record)).peer_port]

    @staticmethod
    def _server(member: EtcdMember, entry: Entry | None) -> str:
        return entry.name if entry else member.name or member.peer_url

    async def _at_a_glance(self, member: EtcdMember, entry: Entry | None) -> Condition | None:
        """The condition, if that is plain; None if etcd has to be asked as well."""
        if entry is None:
            removed = member.name in self._ports.revocations.current.names
            return Condition.REMOVED if removed else None
        hint = hint_of(entry.record)
        if entry.state in LIVE and hint.part is not Part.FAILING:
            if hint.part not in (Part.VOTER, Part.LEARNER) or not member.client_url:
                return Condition.DOUBTFUL
            if member.learner:
                # It cannot answer for the datastore yet, and to wait for that would only delay its promotion.
                return Condition.WELL
            if entry.state is State.ALIVE and await etcd_members.healthy(self.etcd, member.client_url):
                return Condition.WELL
            return Condition.DOUBTFUL
        return None

    async def _second_look(self, member: EtcdMember, heard: set[int]) -> Condition:
        """Dead to the others is not enough: etcd's leader must have lost it, and it must not answer itself."""
        if member.id in heard:
            return Condition.DOUBTFUL
        if member.client_url and await etcd_members.healthy(self.etcd, member.client_url):
            return Condition.DOUBTFUL
        return Condition.LOST

    async def _heard(self, members: list[EtcdMember]) -> set[int]:
        """Whom etcd's leader hears. Without a leader that answers, nobody is said to be lost."""
        status = await etcd_members.status(self.etcd, self.datastore.process.client_url)
        leader = next((member for member in members if member.id == status.leader), None)
        if leader is None or not leader.client_url:
            raise NoDatastore("etcd has no leader at this moment")
        return await etcd_members.heard_by(self.etcd, leader.client_url) | {leader.id}

    def _may_become_one(self, entry: Entry) -> bool:
        hint = hint_of(entry.record)
        return entry.state is State.ALIVE and hint.eligible and hint.part is Part.NONE and hint.era == self._era

    @property
    def _era(self) -> int:
        return self.datastore.state.era

    def _domain(self, server: str) -> str:
        entry = self._members.member(server)
        return dict(entry.record.labels).get(DOMAIN_LABEL, "") if entry else ""

    # Acting

    async def _act(self, decision: Decision) -> None:
        own = self.datastore.process.client_url
        if isinstance(decision, Wait):
            self.reason = decision.reason
            return
        await self.lock.check()
        if isinstance(decision, Remove):
            await etcd_members.remove(self.etcd, own, decision.voice.member)
            self._tell("member_removed", decision.voice.server, decision.reason)
        elif isinstance(decision, Add):
            entry = self._members.member(decision.server)
            if entry is None:
                return
            await etcd_members.add_learner(self.etcd, own, peer_url(entry.record, hint_of(entry.record)))
            self._tell("learner_added", decision.server, decision.reason)
            self._poke(decision.server)
        else:
            await self._promote(decision, own)

    async def _promote(self, decision: Promote, own: str) -> None:
        server = decision.voice.server
        try:
            await etcd_members.promote(self.etcd, own, decision.voice.member)
        except (Rejected, NoDatastore) as problem:
            # Not in step with the leader yet, or not started: told again that it is wanted.
            self.reason = f"{server} learns: {problem}"
            self._poke(server)
            return
        self._tell("learner_promoted", server, "it has caught up")
        self._poke(server)

    def _poke(self, server: str) -> None:
        """Tell a server, which may be this one, that there is news for it in the member list."""
        if server == self._ports.name:
            self.datastore.poked()
        else:
            self._ports.send_look(server)

    def _tell(self, what: str, server: str, reason: str) -> None:
        self.reason = f"{what} {server}: {reason}"
        self._ports.log.warning(f"datastore_{what}", member=server, why=reason)
        told = self._ports.store.publish_cluster_event(self._ports.name, f"datastore_{what}", member=server, why=reason)
        self._ports.spawner.once("events", told)


def _candidate(entry: Entry) -> Candidate:
    labels = dict(entry.record.labels)
    roles = sum(key.startswith(ROLE_PREFIX) for key in labels)
    return Candidate(entry.name, roles, labels.get(DOMAIN_LABEL, ""))
