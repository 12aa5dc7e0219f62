"""The agent of one server: the membership machine, its transport, health checks and control socket, put together.

It holds no rule of its own. The machine decides (`mesh/membership/swim.py`), the desk answers (`handlers.py`); here
outputs become frames, events become log lines, and everything starts, survives a restart and ends.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import random
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackwright.mesh import agent_settings, metrics
from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.agent.control_server import ControlServer
from rackwright.mesh.agent.handlers import AUTHORITY_LABEL, Desk
from rackwright.mesh.datastore.local_datastore import Datastore
from rackwright.mesh.errors import BadRecords, BadSettings, MeshError
from rackwright.mesh.health.health_checks import BadCheck, Check, Outcome, Result, Status, built_in_checks, parse_checks
from rackwright.mesh.health.health_runner import HealthRunner
from rackwright.mesh.health.software import SoftwareWatch
from rackwright.mesh.identity.authority import Authority, AuthorityFiles
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.server_identity import IdentityFiles, new_key, number_of
from rackwright.mesh.identity.signed_statements import Statements
from rackwright.mesh.joining.renewal import renewed
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import LIVE, BadRecord, sorted_labels
from rackwright.mesh.membership.messages import decode, encode
from rackwright.mesh.membership.metadata import Section, pack
from rackwright.mesh.membership.swim import Dial, Event, EventKind, MemberRecord, Output, Send, Swim, SwimConfig
from rackwright.mesh.membership.wire import BadMessage
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.runs.believed_records import RunBelief
from rackwright.mesh.runs.repositories import Repositories
from rackwright.mesh.runs.run_overseer import Overseer
from rackwright.mesh.runs.run_store import RunStore
from rackwright.mesh.runs.tasks import TaskRunner
from rackwright.mesh.supervision import Supervisor, Work
from rackwright.mesh.transport import http
from rackwright.mesh.transport.link import Kind, Link
from rackwright.mesh.transport.tls import Contexts, Peer
from rackwright.mesh.transport.transport import Transport
from rackwright.private_files import write_private_file

LEAVE_SECONDS = 3.0
ALONE_SECONDS = 2.0
PEERS_SECONDS = 1.0
REVOCATIONS_SECONDS = 10.0
AGENT_CHECK = Check(name="agent", interval=5.0, timeout=1.0, failures=1)
"""The agent's own parts, shown to all servers as the health of its software."""
TICK_AGAIN_SECONDS = 0.2
"""After a tick that failed."""


class Agent:
    def __init__(self, folder: Path, write_log: Callable[[str], object] | None = None) -> None:
        self.folder = folder
        self.settings = agent_settings.load(folder)
        self.files = IdentityFiles(folder)
        self.identity = self.files.load()
        self.name = self.settings.name
        if self.identity.name != self.name:
            raise BadSettings(f"agent.yml says {self.name}, but the certificate in {folder} is {self.identity.name}'s")
        self.log = Log(self.name, write_log)
        self.metrics = Metrics()
        self.parts = Supervisor(self.log, self.metrics)
        self.authority = self._open_authority()
        self.revocations = RevocationFile(folder / "revocations.json", self.identity.ca)
        self.swim = self._machine()
        self.health = HealthRunner(self._checks(), self._checked, [(AGENT_CHECK, self._check_parts)])
        self.software = SoftwareWatch()
        self.metrics.watch(self.swim)
        self.contexts = Contexts(self.files)
        self.transport = Transport(self.name, self.settings.advertise, self.contexts, self, self.log, self.metrics)
        self._sections: dict[Section, bytes] = {}
        self.datastore = Datastore(self)
        statements = Statements(lambda: self.identity, lambda *shown: self.revocations.current.covers(*shown))
        self.runs = RunStore(self.datastore.etcd, RunBelief(statements, self._refuse_record))
        self.tasks = TaskRunner(self)
        self.overseer = Overseer(self)
        self.repositories = Repositories(self)
        self.desk = Desk(self)
        self.control = ControlServer(folder, self.desk.ask)
        self.watchers: set[asyncio.Queue[dict[str, Any]]] = set()
        self.began = self.now
        self._timer: asyncio.TimerHandle | None = None
        self._ending = asyncio.Event()
        self._farewell = asyncio.Event()
        self._changed = asyncio.Event()

    # Life

    async def run(self) -> None:
        """Until a signal or `leave` ends it. Leaves the cluster on the way out."""
        with self._only_one():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._ending.set)
            await self._start()
            try:
                async with self.health:
                    await self._ending.wait()
            finally:
                await self._stop()

    def end(self) -> None:
        self._ending.set()

    async def _start(self) -> None:
        if self.identity.expires <= datetime.now(UTC):
            self.log.error("certificate_expired", way_out="ask for a new invite or token, then: mesh join --again")
        bound = await self.transport.start(self.settings.bind)
        await self.control.start()
        for name in self.revocations.current.names:
            self._input(self.swim.remove(self.now, name))
        self._input(self.swim.joined(self.now))
        for part, work in self._parts().items():
            self.parts.keep(part, work)
        if self.settings.metrics:
            await metrics.serve(self.metrics, self.settings.metrics)
        self.metrics.certificate.set(self.identity.expires.timestamp())
        self.metrics.revocations.set(self.revocations.current.version)
        self.log.info(
            "started", address=str(bound), session=self.swim.me.session, expires=self.identity.expires.isoformat()
        )

    def _parts(self) -> dict[str, Work]:
        """What runs as long as the agent does."""
        return {
            "seek": self._seek,
            "peers": self._keep_peers,
            "certificate": self._keep_certificate,
            "revocations": self._offer_revocations,
            "datastore": self.datastore.run,
            "snapshots": self.datastore.keep_snapshots,
            "conductor": self.datastore.conductor.run,
            "tasks": self.tasks.run,
            "overseer": self.overseer.run,
            "repositories": self.repositories.run,
        }

    async def _stop(self) -> None:
        self._save_peers()
        self._input(self.swim.leave(self.now))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._farewell.wait()
        if self._timer:
            self._timer.cancel()
        await self.parts.stop()
        await self.datastore.close()
        await self.control.stop()
        await self.transport.stop()
        self.log.info("ended")

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        with (self.folder / "agent.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                raise BadSettings(f"another agent already runs from {self.folder}") from problem
            yield

    def _open_authority(self) -> Authority | None:
        files = AuthorityFiles(self.folder, self.settings.ca_passphrase_file)
        return files.open(self.settings.certificate_life) if files.exist() else None

    def _machine(self) -> Swim:
        labels = dict(self.settings.labels)
        if self.authority:
            labels[AUTHORITY_LABEL] = "yes"
        try:
            # From 1: a seed is taken in at 0, so that what it says of itself is always news.
            me = MemberRecord(
                self.name, str(self.settings.advertise), 1, next_session(self.folder), sorted_labels(labels)
            )
            config = replace(SwimConfig(), **self.settings.swim)
        except (BadRecord, TypeError, ValueError) as problem:
            raise BadSettings(f"agent.yml cannot be used: {problem}") from problem
        return Swim(config, me, random.Random(os.urandom(16)))  # noqa: S311 - whom to probe next is no secret

    def _checks(self) -> list[Check]:
        """What was declared, and the built-in ones that were not declared in another way."""
        try:
            declared = parse_checks(self.settings.checks)
        except BadCheck as problem:
            raise BadSettings(f"agent.yml: {problem}") from problem
        names = {check.name for check in declared}
        if AGENT_CHECK.name in names:
            raise BadSettings(f"agent.yml: the check {AGENT_CHECK.name!r} is the agent's own; give yours another name")
        return declared + [check for check in built_in_checks() if check.name not in names]

    async def _check_parts(self) -> Outcome:
        failing = self.failing_parts()
        return Outcome(not failing, "; ".join(f"{part} failed: {why}" for part, why in failing.items()))

    def _checked(self, result: Result) -> None:
        self.metrics.checks.labels(result.name).set(result.status is Status.PASSING)
        self._say(Section.HEALTH, self.health.packed())
        self._tell_software(self.swim.me)

    def tell_datastore(self, hint: bytes) -> None:
        self._say(Section.DATASTORE, hint)

    def _say(self, section: Section, content: bytes) -> None:
        """Change one section of what travels with this member's record."""
        if self._sections.get(section) != content:
            self._sections[section] = content
            self._input(self.swim.set_metadata(self.now, pack(self._sections)))

    def poke(self, server: str) -> None:
        """Tell a member that there is news for it in the datastore. A hint: it looks for itself, and late without."""
        if server == self.name:
            self.datastore.poked()
        elif server in self.transport.links:
            self.transport.send_to(server, Kind.LOOK, b"")
        elif (address := self._address_of(server)) is not None:
            self.transport.dial(server, address)

    # The machine and its clock

    @property
    def now(self) -> float:
        """A clock that nobody sets: the wall clock is for certificates and people only."""
        return asyncio.get_running_loop().time()

    def _input(self, outputs: list[Output]) -> None:
        for output in outputs:
            try:
                self._carry_out(output)
            except Exception as problem:  # noqa: BLE001 - told and counted; the other outputs are due all the same
                self.parts.report("membership", problem)
        if self.swim.has_said_goodbye:
            self._farewell.set()
        self._set_timer()

    def _carry_out(self, output: Output) -> None:
        if isinstance(output, Send):
            self._send(output)
        elif isinstance(output, Dial):
            self._dial(output.peer)
        else:
            self._tell(output)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        deadline = self.swim.next_deadline()
        if deadline != float("inf"):
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        try:
            self._input(self.swim.tick(self.now))
        except Exception as problem:  # noqa: BLE001 - told and counted; without a next tick membership would stand still
            self.parts.report("membership", problem)
            self._timer = asyncio.get_running_loop().call_later(TICK_AGAIN_SECONDS, self._tick)

    def _send(self, output: Send) -> None:
        address = self._address_of(output.to)
        self.transport.send(output.to, address, encode(output.message), reliable=output.reliable)

    def _dial(self, peer: str) -> None:
        address = self._address_of(peer)
        if address is not None:
            self.transport.dial(peer, address)

    def _address_of(self, peer: str) -> Address | None:
        entry = self.swim.member(peer)
        return parse_address(entry.record.address) if entry else None

    def _tell(self, event: Event) -> None:
        member = event.member
        self._changed.set()
        self.metrics.events.labels(event.kind.value).inc()
        self.log.member(
            f"member_{event.kind.value}",
            matters=event.kind in (EventKind.DEAD, EventKind.CONFLICT),
            member=member.name,
            address=member.address,
            incarnation=member.incarnation,
        )
        if event.kind is not EventKind.CONFLICT:
            self._tell_software(member)
        told = {"event": event.kind.value, "member": self.desk.describe(member.name, member)}
        for watcher in self.watchers:
            # A watcher that does not read loses events, not the agent its memory.
            with contextlib.suppress(asyncio.QueueFull):
                watcher.put_nowait(told)

    def _tell_software(self, member: MemberRecord) -> None:
        for result in self.software.changes(member):
            write = self.log.warning if result.status is Status.FAILING else self.log.info
            write(f"check_{result.status.name.lower()}", member=member.name, check=result.name, why=result.reason)

    # What the transport hears

    def received(self, peer: str, kind: int, payload: bytes) -> None:
        if kind == Kind.MESSAGE:
            self._message(peer, payload)
        elif kind == Kind.REVOCATIONS_VERSION:
            if int.from_bytes(payload, "big") < self.revocations.current.version:
                self.transport.send_to(peer, Kind.REVOCATIONS, self.revocations.signed)
        elif kind == Kind.REVOCATIONS:
            self.take_revocations(payload, peer)
        elif kind == Kind.LOOK:
            self.datastore.poked()
        else:
            self.refuse("unknown_kind", peer=peer)

    def _message(self, peer: str, payload: bytes) -> None:
        try:
            message = decode(payload)
        except BadMessage as problem:
            self.refuse("bad_message", peer=peer, why=str(problem))
            return
        counters = self.swim.counters
        before = (counters.forged, counters.replayed, counters.shut_out)
        self._input(self.swim.receive(self.now, peer, message))
        for reason, old in zip(("forged", "replayed", "shut_out"), before, strict=True):
            if getattr(counters, reason) != old:
                self.refuse(reason, peer=peer, claimed=message.sender)

    def connected(self, link: Link) -> None:
        # Its certificate is newer than what was revoked, or there would be no link.
        self.swim.readmit(link.peer.name)
        link.send(Kind.REVOCATIONS_VERSION, self.revocations.current.version.to_bytes(8, "big"))
        self._input(self.swim.connected(self.now, link.peer.name))

    def closed(self, peer: str) -> None:
        self._input(self.swim.connection_closed(self.now, peer))

    def refused(self, peer: str) -> None:
        self._input(self.swim.connection_refused(self.now, peer))

    def is_revoked(self, peer: Peer) -> bool:
        return self.revocations.current.covers(peer.name, peer.number)

    async def answer(self, request: http.Request) -> http.Response:
        return await self.desk.answer(request)

    def _refuse_record(self, problem: MeshError) -> None:
        self.refuse(problem.code, source="datastore", why=str(problem))

    def refuse(self, reason: str, **fields: str) -> None:
        self.metrics.refused.labels(reason).inc()
        self.log.refused(reason, **fields)

    # Revocations

    def take_revocations(self, signed: bytes, source: str) -> None:
        """Put a newer list in force: shut out whom it names, and pass it on."""
        before = self.revocations.current
        try:
            fresh = self.revocations.take(signed)
        except BadRecords as problem:
            self.refuse(problem.code, peer=source, why=str(problem))
            return
        if not fresh:
            return
        now = self.revocations.current
        self.metrics.revocations.set(now.version)
        self.transport.broadcast(Kind.REVOCATIONS, signed)
        for name, entry in now.names.items():
            if before.names.get(name) != entry:
                self.log.warning("member_removed", member=name, version=now.version)
                self._input(self.swim.remove(self.now, name))
                self.software.forget(name)
        self.transport.shut_out()
        self.datastore.revoked()
        if now.covers(self.name, number_of(self.identity.certificate.serial_number)):
            self.log.error("removed_from_cluster", way_out="ask for a new invite or token, then: mesh join --again")
            self.end()

    async def _offer_revocations(self) -> None:
        """Members compare versions when they connect and now and then, so that no list is missed for long."""
        if self.authority:
            self.take_revocations(await self.authority.revocations(), self.name)
        while True:
            await asyncio.sleep(REVOCATIONS_SECONDS)
            version = self.revocations.current.version.to_bytes(8, "big")
            self.transport.broadcast(Kind.REVOCATIONS_VERSION, version)

    # Care

    async def _seek(self) -> None:
        """While alone, try everyone we were told of or once knew."""
        while True:
            for seed in self._seeds() if self.swim.live <= 1 else ():
                await self._try_seed(seed)
                if self.swim.live > 1:
                    break
            await asyncio.sleep(ALONE_SECONDS)

    async def _try_seed(self, seed: Address) -> None:
        try:
            link = await self.transport.dial_seed(seed)
            record = MemberRecord(link.peer.name, link.advertise or str(seed))
        except (OSError, MeshError, BadRecord) as problem:
            self.log.info("seed_failed", address=str(seed), why=str(problem))
            return
        self._input(self.swim.joined(self.now, [record]))

    def _seeds(self) -> list[Address]:
        kept: list[Address] = []
        with contextlib.suppress(OSError, ValueError, MeshError, TypeError):
            kept = [parse_address(address) for address in json.loads((self.folder / "peers.json").read_text())]
        return [seed for seed in dict.fromkeys([*self.settings.seeds, *kept]) if seed != self.settings.advertise]

    async def _keep_peers(self) -> None:
        while True:
            await self._changed.wait()
            # Members come in bunches.
            await asyncio.sleep(PEERS_SECONDS)
            self._changed.clear()
            self._save_peers()

    def _save_peers(self) -> None:
        """Whom to seek after a restart. Never emptied: who knows nobody any more keeps whom it knew."""
        entries = [entry for entry in self.swim.members() if entry.state in LIVE and entry.name != self.name]
        # First who has shown a certificate: of the others we were only told, perhaps by a rogue member.
        entries.sort(key=lambda entry: (entry.name not in self.transport.links, entry.record.address))
        if entries:
            addresses = [entry.record.address for entry in entries[:64]]
            write_private_file(self.folder / "peers.json", json.dumps(addresses).encode())

    async def _keep_certificate(self) -> None:
        life = self.identity.expires - self.identity.certificate.not_valid_before_utc
        while True:
            await asyncio.sleep(min(60.0, life.total_seconds() / 30))
            if not self.identity.due():
                continue
            try:
                fresh = await renewed(self, new_key())
            except MeshError as problem:
                left = int((self.identity.expires - datetime.now(UTC)).total_seconds())
                self.log.error("renewal_failed", why=str(problem), seconds_left=left)
                continue
            # On disk first: what cannot be kept is not used, and is asked for anew.
            self.files.save(fresh)
            self.identity = fresh
            self.contexts.reload()
            self.metrics.certificate.set(self.identity.expires.timestamp())
            self.log.info("renewed", expires=self.identity.expires.isoformat())

    def spawn(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        self.parts.once(part, work)

    def failing_parts(self) -> dict[str, str]:
        """The parts of this agent that failed a short while ago, each with the reason."""
        return {**self.transport.parts.failing(), **self.parts.failing()}


def next_session(folder: Path) -> int:
    """The number of this start, higher than any before it, also after a crash."""
    path = folder / "session"
    try:
        last = int(path.read_text())
    except FileNotFoundError:
        last = 0
    except ValueError as problem:
        raise BadSettings(
            f"{path} does not hold a number; write one into it that is higher than ever used"
        ) from problem
    write_private_file(path, str(last + 1).encode())
    return last + 1
