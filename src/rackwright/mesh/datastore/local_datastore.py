"""This server's part in the datastore: whether etcd runs here, as learner or voter, and the hint that others get.

Levels, not edges: every second or two it reads etcd's member list and makes this server follow it. It decides about
this server only; which servers become a datastore is decided in `conductor.py`.
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
from rackwright.mesh.datastore.datastore_state import SavedState, load, save
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
"""A server that is no datastore reads the list seldom: it is woken when it is to become one."""
QUORUM_LOST_SECONDS = 10.0
RESTART_SECONDS = 3.0
"""Seconds between two starts of an etcd that keeps ending."""
MAX_ENDPOINTS = 16
"""Endpoints that are tried: twice as many as a datastore may have servers."""
MAX_ERAS_AHEAD = 1000
"""How many recoveries a server may have missed."""
CUT_SECONDS = 6.0
"""Seconds between the restarts of two datastore servers: an election and a start take less."""


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
    """Sends a hint with this member's record"""
    spawner: Spawner
    log: Log


class ConductorView(Protocol):
    """The part of the conductor that is shown to people."""

    reason: str

    async def owner(self) -> str:
        """Return the name of the server that conducts; empty if none does."""


class Datastore:
    """Runs and watches this server's etcd, if it is to have one."""

    def __init__(self, ports: DatastorePorts) -> None:
        self.config = ports.config
        self._ports, self._name, self._members, self._log = ports, ports.name, ports.members, ports.log
        self.state = load(ports.folder)
        host, bind = ports.advertise.host, ports.bind.host
        self.process = EtcdProcess(ports.name, host, ports.folder / FOLDER, ports.folder, self.config)
        # etcd compares the address a client comes from with the one in its certificate.
        local = bind if bind == host and is_ip(bind) else None
        self.etcd = Etcd(self.endpoints, ports.tls, local)
        self.ineligible_reason = self._ineligible_reason(host)
        self.eligible = not self.ineligible_reason
        self.part = Part.STARTING if self.state.member and self.eligible else Part.NONE
        self.problem = ""
        self._woken = asyncio.Event()
        self._healthy_at = time.monotonic()
        self._quorum_loss_logged = False
        self._next_question = 0.0
        self._next_start = 0.0
        self._lock = asyncio.Lock()

    def _ineligible_reason(self, host: str) -> str:
        """Return why this server can be no datastore; empty if it can."""
        if not self.config.eligible:
            return "datastore.eligible is false in agent.yml"
        if not is_ip(host) or ipaddress.ip_address(host).is_loopback:
            # etcd compares the address a client comes from with the one in its certificate.
            return f"its address {host} is no IP address that others could come from"
        return "" if self.process.available() else f"{self.config.etcd} is not installed here"

    # Running

    async def run(self) -> None:
        """Run until cancelled. etcd goes on if this fails and is started again; `close` ends etcd."""
        self.announce()
        while True:
            try:
                async with self._lock:
                    await self._follow_member_list()
            except (NoDatastore, Rejected) as problem:
                self.problem = str(problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()

    async def close(self) -> None:
        await self.process.stop()
        await self.etcd.close()

    def wake(self) -> None:
        """Read the member list soon: another server says that a change in it concerns this one."""
        self._woken.set()

    def revocations_changed(self) -> None:
        """Tell etcd of a changed list of revocations, and have it cut the connections of removed servers."""
        if self.state.member and self._write_revocations() and self.process.running:
            self._ports.spawner.once("datastore", self._cut_connections())

    def _write_revocations(self) -> bool:
        return self.process.write_revocations(self._ports.revocations.current.names, self._ports.identity.current.key)

    async def _cut_connections(self) -> None:
        """Restart etcd to end the open connections of removed servers; the list counts for new ones only.

        The datastore servers do it one after another, so that a majority stays.
        """
        voters = sorted(entry.name for entry in self._members.members() if hint_of(entry.record).part is Part.VOTER)
        turn = voters.index(self._name) if self._name in voters else 0
        await asyncio.sleep(1.0 + turn * CUT_SECONDS)
        async with self._lock:
            self._log.info("datastore_restarted", why="to end the connections of a server that was removed")
            await self.process.stop()
        self.wake()

    def is_voter(self) -> bool:
        """Return whether a healthy etcd with a vote runs here."""
        return self.part is Part.VOTER

    def endpoints(self) -> list[str]:
        """Return where the datastore may answer: first here, then at members that claim to be voters, then at former
        ones.

        Never more than could be: a rogue member may announce thousands, and each costs a client that asks them all a
        while. Servers that have shown us their certificate, and those that etcd has named, come before those that are
        only announced.
        """
        announced: list[tuple[bool, bool, str]] = []
        for entry in self._members.members():
            hint = hint_of(entry.record)
            if hint.part is Part.VOTER and hint.era == self.state.era:
                url = client_url(entry.record, hint)
                unproved = entry.name not in self._ports.linked and url not in self.state.endpoints
                announced.append((unproved, entry.state not in LIVE, url))
        announced.sort()
        own = [self.process.client_url] if self.part is Part.VOTER else []
        proved = [url for unproved, _, url in announced if not unproved]
        saved = [url for url in self.state.endpoints if url != self.process.client_url]
        return list(dict.fromkeys([*own, *proved, *saved, *(url for _, _, url in announced)]))[:MAX_ENDPOINTS]

    def announce(self) -> None:
        """Send the current hint with this member's record."""
        hint = Hint(self.part, self.eligible, self.state.era, self.config.client_port, self.config.peer_port)
        self._ports.announce(hint.pack())

    # Following the member list

    async def _follow_member_list(self) -> None:
        """Read etcd's member list, if that is due, and follow it."""
        self._follow_era()
        self.announce()
        woken = self._woken.is_set()
        self._woken.clear()
        if not self.eligible:
            return
        if self.state.member:
            await self._watch_etcd()
        elif woken or time.monotonic() >= self._next_question:
            # A server that has just joined knows no endpoint yet, and asks as soon as it does.
            has_endpoints = bool(self.endpoints())
            self._next_question = time.monotonic() + PLAIN_SECONDS if has_endpoints else 0.0
            await self._become_learner_if_listed()
            self.problem = ""
        self.announce()

    def _follow_era(self) -> None:
        """Give up our datastore if a newer one has been begun, by a person's decision."""
        newest = self._newest_era()
        if newest > self.state.era:
            if self.state.era and self.state.member:
                self._log.warning("datastore_superseded", era=newest, was=self.state.era)
            self._save_state(SavedState(newest))
            self.part = Part.NONE

    def _newest_era(self) -> int:
        """Return the number of the newest datastore that any member announces.

        One that is far ahead is a lie: each recovery counts one, and a server that followed up to the last possible
        number could never begin another.
        """
        eras = (hint_of(entry.record).era for entry in self._members.members())
        return max((era for era in eras if era <= self.state.era + MAX_ERAS_AHEAD), default=0)

    async def _become_learner_if_listed(self) -> None:
        """Start etcd here if its member list has this server, which is no datastore yet."""
        if self.process.running:
            await self.process.stop()
        if self.process.has_data():
            self.process.move_data_aside()
        members = await etcd_members.members(self.etcd)
        self._save_endpoints(members)
        own_member = next((member for member in members if member.peer_url == self.process.peer_url), None)
        if own_member is not None:
            await self._begin_learning(own_member, members)

    async def _begin_learning(self, own_member: EtcdMember, members: list[EtcdMember]) -> None:
        started = [member for member in members if member.name or member is own_member]
        cluster = {member.name or self._name: member.peer_url for member in started}
        self.part = Part.STARTING
        self._save_state(replace(self.state, member=True, member_id=own_member.id, alone=False))
        self._log.info("datastore_learning", members=sorted(cluster))
        self._write_revocations()
        await self.process.start(cluster, self.state.token or "rackwright", existing=True)

    async def _watch_etcd(self) -> None:
        """Keep etcd running, check its health, and notice when this server is no longer to be a datastore."""
        if not self.process.running:
            if await self._was_replaced():
                await self._become_plain()
                return
            if time.monotonic() >= self._next_start:
                self._next_start = time.monotonic() + RESTART_SECONDS
                await self._restart()
        # A learner answers no request for the datastore, and asking takes until the timeout.
        learning = self.part is Part.LEARNER and await self._is_still_learner()
        if not learning and await etcd_members.is_healthy(self.etcd, self.process.client_url):
            await self._handle_healthy()
        else:
            await self._handle_unhealthy()

    async def _restart(self) -> None:
        if self.process.pid is None and self.problem:
            self._log.error("datastore_ended", why=self.process.last_log_line())
        # With data on disk etcd knows its cluster from there; this is for the first start of a founder only.
        cluster = {self._name: self.process.peer_url}
        self._write_revocations()
        await self.process.start(cluster, self.state.token, existing=not self.state.alone)
        self.problem = "etcd is starting"

    async def _handle_healthy(self) -> None:
        """Take over from etcd's member list what this server is."""
        self._healthy_at = time.monotonic()
        self._quorum_loss_logged = False
        members = await etcd_members.members_at(self.etcd, self.process.client_url)
        own_member = next((member for member in members if member.peer_url == self.process.peer_url), None)
        if own_member is None:
            await self._become_plain()
            return
        part = Part.LEARNER if own_member.learner else Part.VOTER
        if part is not self.part:
            self.part = part
            self._log.info("datastore_part", part=part.name.lower())
        self.problem = ""
        # From here on this server never begins a datastore by itself again, not even if its data is lost.
        self._save_state(replace(self.state, member_id=own_member.id, alone=False))
        self._save_endpoints(members)

    async def _handle_unhealthy(self) -> None:
        """Find out why etcd is not healthy: it learns, was replaced, or has no quorum."""
        unhealthy_seconds = time.monotonic() - self._healthy_at
        if self.part is Part.LEARNER or self.part is Part.STARTING:
            # A learner cannot prove its health by a write; it is as healthy as its process.
            if await self._is_still_learner():
                self.part = Part.LEARNER
                self._healthy_at = time.monotonic()
        elif unhealthy_seconds > QUORUM_LOST_SECONDS / 2:
            self.part = Part.FAILING
        if unhealthy_seconds > 2 * LOOK_SECONDS and await self._was_replaced():
            await self._become_plain()
            return
        if unhealthy_seconds > QUORUM_LOST_SECONDS and self.part is Part.FAILING:
            self._report_quorum_lost()

    async def _is_still_learner(self) -> bool:
        """Whether this server's etcd knows itself as a learner."""
        with contextlib.suppress(NoDatastore, Rejected):
            members = await etcd_members.members_at(self.etcd, self.process.client_url)
            own_member = next((member for member in members if member.peer_url == self.process.peer_url), None)
            return own_member is not None and own_member.learner
        return False

    def _report_quorum_lost(self) -> None:
        self.problem = (
            "this server's etcd has no leader: most of the datastore servers are down or out of reach. Nothing is"
            " changed by itself. Bring one back, or begin anew with: rackwright mesh recover --from-snapshot"
        )
        if not self._quorum_loss_logged:
            self._quorum_loss_logged = True
            self._log.error("datastore_quorum_lost", why=self.problem)

    async def _was_replaced(self) -> bool:
        """Whether the others, by a majority, no longer have this server as a member."""
        if self.state.alone and not self.process.has_data():
            return False
        others = [url for url in self.endpoints() if url != self.process.client_url]
        if not others or not self.state.member_id:
            return False
        others_etcd = Etcd(lambda: others, self._ports.tls)
        try:
            members = await etcd_members.members(others_etcd, deadline=1.0)
        except (NoDatastore, Rejected):
            # No majority answers: this server stays what it was.
            return False
        finally:
            await others_etcd.close()
        return all(member.id != self.state.member_id for member in members)

    async def _become_plain(self) -> None:
        """End etcd here: this server is no datastore any more."""
        self._log.warning("datastore_replaced", way_on="this server goes on as a plain agent")
        await self.process.stop()
        self.process.move_data_aside()
        self.part, self.problem = Part.NONE, ""
        self._save_state(replace(self.state, member=False, member_id=0, alone=False))
        self.announce()

    def _save_endpoints(self, members: list[EtcdMember]) -> None:
        urls = tuple(sorted(member.client_url for member in members if member.client_url and not member.learner))
        if urls and urls != self.state.endpoints:
            self._save_state(replace(self.state, endpoints=urls))

    def _save_state(self, state: SavedState) -> None:
        """Replace the state, on disk too, if it changed."""
        if state != self.state:
            self.state = state
            save(self._ports.folder, state)

    # For people

    async def describe(self, conductor: ConductorView) -> dict[str, Any]:
        """Return the datastore as seen from here."""
        description: dict[str, Any] = {
            "here": self.part.name.lower(),
            "eligible": self.eligible,
            "why_not": self.ineligible_reason,
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
            members = await etcd_members.members(self.etcd, deadline=1.0)
            description["quorum"] = True
            if not self.state.member:
                # The problem of a while ago is over: the datastore has just answered.
                description["problem"] = self.problem = ""
            description["conductor"] = await conductor.owner()
        except (NoDatastore, Rejected) as problem:
            description["problem"] = self.problem or str(problem)
            members = await self._possibly_stale_members()
        description["members"] = list(await asyncio.gather(*(self._describe_member(member) for member in members)))
        healthy = sum(member["healthy"] and not member["learner"] for member in description["members"])
        description["fault_tolerant"] = description["quorum"] and healthy >= 3
        return description

    async def _possibly_stale_members(self) -> list[EtcdMember]:
        own = [self.process.client_url] if self.process.running else []
        for endpoint in (*own, *self.endpoints()):
            with contextlib.suppress(NoDatastore, Rejected):
                return await etcd_members.members_at(self.etcd, endpoint)
        return []

    async def _describe_member(self, member: EtcdMember) -> dict[str, Any]:
        line: dict[str, Any] = {"id": f"{member.id:x}", "server": member.name, "learner": member.learner}
        line |= {"url": member.client_url, "healthy": False, "leader": False, "bytes": 0}
        if not member.client_url:
            return line
        with contextlib.suppress(NoDatastore, Rejected):
            status = await etcd_members.status(self.etcd, member.client_url)
            line |= {"leader": status.leader == member.id, "bytes": status.bytes}
            # A learner cannot answer for the datastore; it is as healthy as its process.
            line["healthy"] = member.learner or await etcd_members.is_healthy(self.etcd, member.client_url)
        return line

    # Snapshots and recovery

    async def keep_snapshots(self) -> None:
        """Take a snapshot every so often while this server is a voter, until cancelled."""
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
        """Begin a new datastore on this server from a snapshot. A person's decision: later changes are lost."""
        if not self.eligible:
            raise BadRequest(f"this server cannot be a datastore: {self.ineligible_reason}")
        with contextlib.suppress(NoDatastore, Rejected):
            await etcd_members.members(self.etcd, deadline=1.0)
            raise BadRequest("the datastore answers, so there is nothing to recover; see: rackwright mesh datastore")
        chosen = snapshot or next(reversed(self.process.snapshot_files()), None)
        if chosen is None or not chosen.is_file():
            raise BadRequest(f"there is no snapshot {chosen or f'in {self.process.snapshots}'}; name one")
        async with self._lock:
            await self.process.stop()
            aside = self.process.move_data_aside()
            newest = self._newest_era()
            token = secrets.token_hex(8)
            await self.process.restore(chosen, token)
            self._save_state(SavedState(max(newest, self.state.era) + 1, token, member=True, alone=True))
            self.part = Part.STARTING
            self.announce()
            self._log.warning("datastore_recovered", snapshot=str(chosen), era=self.state.era)
        self.wake()
        return {"snapshot": str(chosen), "era": self.state.era, "aside": str(aside) if aside else ""}
