"""This server's part in the datastore: whether etcd runs here, as what, and what the others are told of it.

Levels, not edges: every second or two it looks at what etcd's member list says and makes it so. It decides about this
server only; who becomes a datastore is `conductor.py`.
"""

import asyncio
import contextlib
import ipaddress
import secrets
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path
from ssl import SSLContext
from typing import Any, Protocol

from rackwright.mesh.address import Address
from rackwright.mesh.datastore import etcd_members
from rackwright.mesh.datastore.datastore_gossip import Hint, Part, client_url, hint_of
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.datastore.datastore_state import KeptState, load, save
from rackwright.mesh.datastore.etcd_client import Etcd
from rackwright.mesh.datastore.etcd_members import EtcdMember
from rackwright.mesh.datastore.etcd_process import EtcdProcess
from rackwright.mesh.errors import BadRequest, MeshError, NoDatastore, Rejected
from rackwright.mesh.identity.authority import is_ip
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.server_identity import OwnIdentity
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import LIVE
from rackwright.mesh.membership.member_view import MemberView
from rackwright.mesh.supervision import Spawner

FOLDER = "etcd"
LOOK_SECONDS = 1.0
PLAIN_SECONDS = 15.0
"""A server that is no datastore looks seldom: who wants it pokes it."""
QUORUM_LOST_SECONDS = 10.0
RESTART_SECONDS = 3.0
"""Between two starts of an etcd that does not stay."""
MAX_ENDPOINTS = 16
"""Twice as many as a datastore may have servers."""
MAX_ERAS_AHEAD = 1000
"""How many recoveries a server may have missed."""
CUT_SECONDS = 6.0
"""Between the restarts of two datastore servers: an election and a start take less."""


@dataclass(frozen=True)
class DatastorePorts:
    """What the datastore uses of its agent."""

    name: str
    folder: Path
    config: DatastoreConfig
    advertise: Address
    bind: Address
    tls: SSLContext
    """For calls to etcd: shows this server's certificate"""
    identity: OwnIdentity
    members: MemberView
    linked: Container[str]
    """Names of members that have shown us their certificate on a link that is open"""
    revocations: RevocationFile
    announce: Callable[[bytes], None]
    """Lets a hint travel with this member's record"""
    spawner: Spawner
    log: Log


class ConductorView(Protocol):
    """What is shown of the conductor."""

    reason: str

    async def owner(self) -> str:
        """Return the name of the server that conducts; empty if none does."""


class Datastore:
    def __init__(self, ports: DatastorePorts) -> None:
        self.config = ports.config
        self._ports, self._name, self._members, self._log = ports, ports.name, ports.members, ports.log
        self.state = load(ports.folder)
        host, bind = ports.advertise.host, ports.bind.host
        self.process = EtcdProcess(ports.name, host, ports.folder / FOLDER, ports.folder, self.config)
        # etcd compares the address a client comes from with the one in its certificate.
        local = bind if bind == host and is_ip(bind) else None
        self.etcd = Etcd(self.endpoints, ports.tls, local)
        self.why_not = self._why_not(host)
        self.eligible = not self.why_not
        self.part = Part.STARTING if self.state.member and self.eligible else Part.NONE
        self.problem = ""
        self._poked = asyncio.Event()
        self._since_well = time.monotonic()
        self._told_lost = False
        self._next_question = 0.0
        self._next_start = 0.0
        self._lock = asyncio.Lock()

    def _why_not(self, host: str) -> str:
        """Why this server can hold no datastore; empty if it can."""
        if not self.config.eligible:
            return "datastore.eligible is false in agent.yml"
        if not is_ip(host) or ipaddress.ip_address(host).is_loopback:
            # etcd compares the address a client comes from with the one in its certificate.
            return f"its address {host} is no IP address that others could come from"
        return "" if self.process.available() else f"{self.config.etcd} is not installed here"

    # Life

    async def run(self) -> None:
        """Until cancelled. etcd goes on if this fails and is started again; `close` ends it."""
        self.announce()
        while True:
            try:
                async with self._lock:
                    await self._look()
            except (NoDatastore, Rejected) as problem:
                self.problem = str(problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._poked.wait()

    async def close(self) -> None:
        await self.process.stop()
        await self.etcd.close()

    def poked(self) -> None:
        """Someone says that there is news about this server in the member list."""
        self._poked.set()

    def revoked(self) -> None:
        """The list of who is shut out has changed."""
        if self.state.member and self._write_shut_out() and self.process.running:
            self._ports.spawner.once("datastore", self._cut_connections())

    def _write_shut_out(self) -> bool:
        return self.process.write_shut_out(self._ports.revocations.current.names, self._ports.identity.current.key)

    async def _cut_connections(self) -> None:
        """etcd heeds the list for new connections; those that are open end with its process. One after another, so
        that a majority stays.
        """
        voters = sorted(entry.name for entry in self._members.members() if hint_of(entry.record).part is Part.VOTER)
        place = voters.index(self._name) if self._name in voters else 0
        await asyncio.sleep(1.0 + place * CUT_SECONDS)
        async with self._lock:
            self._log.info("datastore_restarted", why="to end the connections of a server that was removed")
            await self.process.stop()
        self.poked()

    def is_voter(self) -> bool:
        """Return whether a healthy etcd with a vote runs here."""
        return self.part is Part.VOTER

    def endpoints(self) -> list[str]:
        """Where the datastore may answer: first here, then who is said to be a voter, then who once was.

        Never more than could be: a rogue member may tell of thousands, and each costs who asks them all a while. Before
        those that are only told of come servers that have shown us their certificate, and those that etcd has named.
        """
        told: list[tuple[bool, bool, str]] = []
        for entry in self._members.members():
            hint = hint_of(entry.record)
            if hint.part is Part.VOTER and hint.era == self.state.era:
                url = client_url(entry.record, hint)
                unproved = entry.name not in self._ports.linked and url not in self.state.endpoints
                told.append((unproved, entry.state not in LIVE, url))
        told.sort()
        own = [self.process.client_url] if self.part is Part.VOTER else []
        proved = [url for unproved, _, url in told if not unproved]
        kept = [url for url in self.state.endpoints if url != self.process.client_url]
        return list(dict.fromkeys([*own, *proved, *kept, *(url for _, _, url in told)]))[:MAX_ENDPOINTS]

    def announce(self) -> None:
        hint = Hint(self.part, self.eligible, self.state.era, self.config.client_port, self.config.peer_port)
        self._ports.announce(hint.pack())

    # Looking

    async def _look(self) -> None:
        self._follow_era()
        self.announce()
        poked = self._poked.is_set()
        self._poked.clear()
        if not self.eligible:
            return
        if self.state.member:
            await self._care()
        elif poked or time.monotonic() >= self._next_question:
            # Who has just joined knows nobody to ask yet, and asks as soon as it does.
            known = bool(self.endpoints())
            self._next_question = time.monotonic() + PLAIN_SECONDS if known else 0.0
            await self._wanted()
            self.problem = ""
        self.announce()

    def _follow_era(self) -> None:
        """A newer datastore than ours has been begun, by a person's decision: ours is history."""
        newest = self._newest_era()
        if newest > self.state.era:
            if self.state.era and self.state.member:
                self._log.warning("datastore_superseded", era=newest, was=self.state.era)
            self._keep(KeptState(newest))
            self.part = Part.NONE

    def _newest_era(self) -> int:
        """The number of the newest datastore that any member tells of. One that is far ahead is a lie: each recovery
        counts one, and who followed up to the last number there is could never begin another.
        """
        told = (hint_of(entry.record).era for entry in self._members.members())
        return max((era for era in told if era <= self.state.era + MAX_ERAS_AHEAD), default=0)

    async def _wanted(self) -> None:
        """Not a datastore: become one if etcd's members have been told to expect us."""
        if self.process.running:
            await self.process.stop()
        if self.process.has_data():
            self.process.put_aside()
        listed = await etcd_members.members(self.etcd)
        self._keep_endpoints(listed)
        mine = next((member for member in listed if member.peer_url == self.process.peer_url), None)
        if mine is not None:
            await self._begin_learning(mine, listed)

    async def _begin_learning(self, mine: EtcdMember, listed: list[EtcdMember]) -> None:
        known = [member for member in listed if member.name or member is mine]
        cluster = {member.name or self._name: member.peer_url for member in known}
        self.part = Part.STARTING
        self._keep(replace(self.state, member=True, member_id=mine.id, alone=False))
        self._log.info("datastore_learning", members=sorted(cluster))
        self._write_shut_out()
        await self.process.start(cluster, self.state.token or "rackwright", existing=True)

    async def _care(self) -> None:
        """A datastore: keep etcd running, see how it is, and notice when it is no longer wanted."""
        if not self.process.running:
            if await self._replaced():
                await self._become_plain()
                return
            if time.monotonic() >= self._next_start:
                self._next_start = time.monotonic() + RESTART_SECONDS
                await self._restart()
        # A learner answers no question for the datastore, and asking takes as long as it is waited for.
        learning = self.part is Part.LEARNER and await self._still_learns()
        if not learning and await etcd_members.healthy(self.etcd, self.process.client_url):
            await self._well()
        else:
            await self._unwell()

    async def _restart(self) -> None:
        if self.process.pid is None and self.problem:
            self._log.error("datastore_ended", why=self.process.last_words())
        # With data on disk etcd knows its cluster from there; this is for the first start of a founder only.
        cluster = {self._name: self.process.peer_url}
        self._write_shut_out()
        await self.process.start(cluster, self.state.token, existing=not self.state.alone)
        self.problem = "etcd is starting"

    async def _well(self) -> None:
        self._since_well = time.monotonic()
        self._told_lost = False
        listed = await etcd_members.members_at(self.etcd, self.process.client_url)
        mine = next((member for member in listed if member.peer_url == self.process.peer_url), None)
        if mine is None:
            await self._become_plain()
            return
        part = Part.LEARNER if mine.learner else Part.VOTER
        if part is not self.part:
            self.part = part
            self._log.info("datastore_part", part=part.name.lower())
        self.problem = ""
        # From here on it never begins a datastore by itself again, not even if its data is lost.
        self._keep(replace(self.state, member_id=mine.id, alone=False))
        self._keep_endpoints(listed)

    async def _unwell(self) -> None:
        away = time.monotonic() - self._since_well
        if self.part is Part.LEARNER or self.part is Part.STARTING:
            # A learner cannot say that it is well by a write; it is as well as its process.
            if await self._still_learns():
                self.part = Part.LEARNER
                self._since_well = time.monotonic()
        elif away > QUORUM_LOST_SECONDS / 2:
            self.part = Part.FAILING
        if away > 2 * LOOK_SECONDS and await self._replaced():
            await self._become_plain()
            return
        if away > QUORUM_LOST_SECONDS and self.part is Part.FAILING:
            self._tell_quorum_lost()

    async def _still_learns(self) -> bool:
        """Whether this server's etcd knows itself as a learner."""
        with contextlib.suppress(NoDatastore, Rejected):
            listed = await etcd_members.members_at(self.etcd, self.process.client_url)
            mine = next((member for member in listed if member.peer_url == self.process.peer_url), None)
            return mine is not None and mine.learner
        return False

    def _tell_quorum_lost(self) -> None:
        self.problem = (
            "this server's etcd has no leader: most of the datastore servers are down or out of reach. Nothing is"
            " changed by itself. Bring one back, or begin anew with: rackwright mesh recover --from-snapshot"
        )
        if not self._told_lost:
            self._told_lost = True
            self._log.error("datastore_quorum_lost", why=self.problem)

    async def _replaced(self) -> bool:
        """Whether the others, by a majority, no longer count this server among them."""
        if self.state.alone and not self.process.has_data():
            return False
        others = [url for url in self.endpoints() if url != self.process.client_url]
        if not others or not self.state.member_id:
            return False
        asked = Etcd(lambda: others, self._ports.tls)
        try:
            listed = await etcd_members.members(asked, deadline=1.0)
        except (NoDatastore, Rejected):
            # Nobody can say: stay what we were.
            return False
        finally:
            await asked.close()
        return all(member.id != self.state.member_id for member in listed)

    async def _become_plain(self) -> None:
        self._log.warning("datastore_replaced", way_on="this server goes on as a plain agent")
        await self.process.stop()
        self.process.put_aside()
        self.part, self.problem = Part.NONE, ""
        self._keep(replace(self.state, member=False, member_id=0, alone=False))
        self.announce()

    def _keep_endpoints(self, listed: list[EtcdMember]) -> None:
        urls = tuple(sorted(member.client_url for member in listed if member.client_url and not member.learner))
        if urls and urls != self.state.endpoints:
            self._keep(replace(self.state, endpoints=urls))

    def _keep(self, state: KeptState) -> None:
        if state != self.state:
            self.state = state
            save(self._ports.folder, state)

    # For people

    async def describe(self, conductor: ConductorView) -> dict[str, Any]:
        """The datastore as seen from here."""
        told: dict[str, Any] = {
            "here": self.part.name.lower(),
            "eligible": self.eligible,
            "why_not": self.why_not,
            "era": self.state.era,
            "count": self.config.count,
            "endpoints": self.endpoints(),
            "problem": self.problem,
            "conductor": "",
            "members": [],
            "quorum": False,
            "doing": conductor.reason if self.part is Part.VOTER else "",
            "snapshots": [path.name for path in self.process.snapshot_files()],
        }
        try:
            listed = await etcd_members.members(self.etcd, deadline=1.0)
            told["quorum"] = True
            if not self.state.member:
                # What this server could not do a while ago is over: it has just been answered.
                told["problem"] = self.problem = ""
            told["conductor"] = await conductor.owner()
        except (NoDatastore, Rejected) as problem:
            told["problem"] = self.problem or str(problem)
            listed = await self._stale_members()
        told["members"] = list(await asyncio.gather(*(self._describe(member) for member in listed)))
        well = sum(member["healthy"] and not member["learner"] for member in told["members"])
        told["fault_tolerant"] = told["quorum"] and well >= 3
        return told

    async def _stale_members(self) -> list[EtcdMember]:
        own = [self.process.client_url] if self.process.running else []
        for endpoint in (*own, *self.endpoints()):
            with contextlib.suppress(NoDatastore, Rejected):
                return await etcd_members.members_at(self.etcd, endpoint)
        return []

    async def _describe(self, member: EtcdMember) -> dict[str, Any]:
        line: dict[str, Any] = {"id": f"{member.id:x}", "server": member.name, "learner": member.learner}
        line |= {"url": member.client_url, "healthy": False, "leader": False, "bytes": 0}
        if not member.client_url:
            return line
        with contextlib.suppress(NoDatastore, Rejected):
            status = await etcd_members.status(self.etcd, member.client_url)
            line |= {"leader": status.leader == member.id, "bytes": status.bytes}
            # A learner cannot answer for the datastore; it is as well as its process.
            line["healthy"] = member.learner or await etcd_members.healthy(self.etcd, member.client_url)
        return line

    # Snapshots and recovery

    async def keep_snapshots(self) -> None:
        while True:
            await asyncio.sleep(self.config.snapshot_minutes * 60)
            if self.part is Part.VOTER:
                try:
                    path = await self.process.take_snapshot()
                except MeshError as problem:
                    self._log.error("snapshot_failed", why=str(problem))
                else:
                    self._log.info("snapshot_taken", path=str(path))

    async def snapshot(self) -> Path:
        if self.part is not Part.VOTER:
            raise BadRequest("this server is no datastore; take the snapshot on one that is: rackwright mesh datastore")
        return await self.process.take_snapshot()

    async def recover(self, snapshot: Path | None) -> dict[str, Any]:
        """Begin a new datastore on this server from a snapshot. A person's decision: what came after it is lost."""
        if not self.eligible:
            raise BadRequest(f"this server cannot be a datastore: {self.why_not}")
        with contextlib.suppress(NoDatastore, Rejected):
            await etcd_members.members(self.etcd, deadline=1.0)
            raise BadRequest("the datastore answers, so there is nothing to recover; see: rackwright mesh datastore")
        chosen = snapshot or next(reversed(self.process.snapshot_files()), None)
        if chosen is None or not chosen.is_file():
            raise BadRequest(f"there is no snapshot {chosen or f'in {self.process.snapshots}'}; name one")
        async with self._lock:
            await self.process.stop()
            aside = self.process.put_aside()
            newest = self._newest_era()
            token = secrets.token_hex(8)
            await self.process.restore(chosen, token)
            self._keep(KeptState(max(newest, self.state.era) + 1, token, member=True, alone=True))
            self.part = Part.STARTING
            self.announce()
            self._log.warning("datastore_recovered", snapshot=str(chosen), era=self.state.era)
        self.poked()
        return {"snapshot": str(chosen), "era": self.state.era, "aside": str(aside) if aside else ""}
