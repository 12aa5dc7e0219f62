"""Handlers of the control socket, for people on the same server: members, status, invites, the datastore, leaving.

The socket is `control_server.py`. Requests about runs are handled in `mesh/runs/run_handlers.py`, HTTP requests of
strangers and members in `admission_handler.py`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rackwright.mesh.address import Address
from rackwright.mesh.agent.admission_handler import AdmissionHandler
from rackwright.mesh.datastore.conductor import Conductor
from rackwright.mesh.datastore.datastore_gossip import Part, hint_of
from rackwright.mesh.datastore.local_datastore import Datastore
from rackwright.mesh.errors import BadRequest, TooMany
from rackwright.mesh.health.software import read_software
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.server_identity import OwnIdentity, fingerprint
from rackwright.mesh.joining.admission import INVITE_SECONDS, TOKEN_SECONDS, Admission
from rackwright.mesh.joining.handover import ensure_key
from rackwright.mesh.membership.member import MemberRecord, State
from rackwright.mesh.membership.member_view import MemberView, authorities, live_records
from rackwright.mesh.membership.protocol_outputs import Event
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.runs.run_handlers import RunHandlers

MAX_WATCHERS = 64


class AwareMemberView(MemberView, Protocol):
    """The members, and how much this server doubts its own health."""

    @property
    def awareness(self) -> int:
        """Zero when healthy; the higher, the more this member doubts its own health."""


@dataclass(frozen=True)
class ControlHandlerPorts:
    """What the handlers use of their agent."""

    name: str
    advertise: Address
    ssh_key: Path
    """The SSH key with which invited servers are visited"""
    identity: OwnIdentity
    members: AwareMemberView
    revocations: RevocationFile
    admission: AdmissionHandler
    datastore: Datastore
    conductor: Conductor
    runs: RunHandlers
    metrics: Metrics
    count_links: Callable[[], int]
    failing_parts: Callable[[], dict[str, str]]
    end: Callable[[], None]
    """Ends the agent"""


class ControlHandlers:
    """The handlers of an agent's control socket, by verb, and the clients that watch its members."""

    def __init__(self, ports: ControlHandlerPorts) -> None:
        self._ports, self._name, self._members = ports, ports.name, ports.members
        self._started_at = _now()
        self._watchers: set[asyncio.Queue[dict[str, Any]]] = set()

    async def handle(
        self, verb: str, request: dict[str, Any]
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]] | AsyncIterator[dict[str, Any] | bytes]:
        verbs = {"members": self.members, "status": self.status, "metrics": self._metrics, "leave": self._leave}
        if verb in verbs:
            return verbs[verb]()
        if verb == "watch":
            return self._watch()
        answer = await self._ports.runs.handle(verb, request)
        if answer is not None:
            return answer
        if verb == "datastore":
            return await self._ports.datastore.describe(self._ports.conductor)
        if verb == "snapshot":
            return {"snapshot": str(await self._ports.datastore.snapshot())}
        if verb == "recover":
            snapshot = request.get("snapshot")
            return await self._ports.datastore.recover(Path(snapshot) if snapshot else None)
        admission = self._ports.admission.admission()
        if verb == "invite":
            return await self._invite(admission, request)
        if verb == "token":
            address, seconds = str(self._ports.advertise), int(request.get("seconds", TOKEN_SECONDS))
            return {
                "token": await admission.token(request["name"], address, seconds, str(request.get("address") or ""))
            }
        if verb == "remove":
            return await self._remove(admission, request["name"])
        raise BadRequest(f"the agent does not know {verb!r}; is the command newer than the agent? restart the agent")

    def members(self) -> dict[str, Any]:
        entries = sorted(self._members.members(), key=lambda entry: entry.name)
        return {"members": [self.describe(entry.name, entry.record) for entry in entries]}

    def describe(self, name: str, record: MemberRecord) -> dict[str, Any]:
        entry = self._members.member(name)
        software = read_software(record)
        return {
            "name": name,
            "address": record.address,
            "state": entry.state.name.lower() if entry else "removed",
            # Nobody here has seen anything before this agent started, itself included.
            "seconds": round(_now() - max(entry.since, self._started_at), 3) if entry else 0.0,
            "incarnation": record.incarnation,
            "session": record.session,
            "labels": dict(record.labels),
            "datastore": hint_of(record).part.name.lower(),
            "checks": software.status_words(),
            "reasons": software.reasons(),
            "checks_left_out": software.left_out,
            "self": name == self._name,
        }

    def status(self) -> dict[str, Any]:
        ports = self._ports
        identity, states = ports.identity.current, [entry.state for entry in self._members.members()]
        alive, holders = live_records(self._members), authorities(self._members)
        return {
            "name": self._name,
            "address": str(ports.advertise),
            "ca": fingerprint(identity.ca),
            "holds_ca": ports.admission.holds_ca,
            "authorities": [record.name for record in holders],
            "certificate_expires": identity.expires.isoformat(),
            "revocations": ports.revocations.current.version,
            "awareness": self._members.awareness,
            "links": ports.count_links(),
            "members": {state.name.lower(): states.count(state) for state in State},
            "failing_parts": ports.failing_parts(),
            "datastore": sorted(record.name for record in alive if hint_of(record).part is Part.VOTER),
        }

    def _metrics(self) -> dict[str, Any]:
        return {"text": self._ports.metrics.text().decode()}

    def _leave(self) -> dict[str, Any]:
        self._ports.end()
        return {}

    async def _watch(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the members as they are now, then every event with the members."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise TooMany("too many are watching; end one of them first")
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1024)
        self._watchers.add(queue)
        try:
            yield self.members()
            while True:
                try:
                    async with asyncio.timeout(1.0):
                        notice = await queue.get()
                except TimeoutError:
                    # Sent so that times are updated, and that a watcher who has gone is noticed.
                    notice = {"event": "still_here"}
                yield {**notice, **self.members()}
        finally:
            self._watchers.discard(queue)

    def member_changed(self, event: Event) -> None:
        """Send an event to all watchers."""
        notice = {"event": event.kind.value, "member": self.describe(event.member.name, event.member)}
        for watcher in self._watchers:
            # A watcher that does not read loses events; the agent must not run out of memory for it.
            with contextlib.suppress(asyncio.QueueFull):
                watcher.put_nowait(notice)

    async def _invite(self, admission: Admission, request: dict[str, Any]) -> dict[str, Any]:
        await admission.invite(
            request["name"],
            request["address"],
            request["host_key"],
            int(request["port"]),
            request["user"],
            request["folder"],
            int(request.get("seconds", INVITE_SECONDS)),
        )
        line = ensure_key(self._ports.ssh_key)
        ca = fingerprint(self._ports.identity.current.ca)
        return {"authorized_key": line, "address": str(self._ports.advertise), "ca": ca}

    async def _remove(self, admission: Admission, name: str) -> dict[str, Any]:
        if name == self._name:
            raise BadRequest(f"{name} holds the CA and cannot remove itself; it can leave with: rackwright mesh leave")
        known = {issued.name for issued in await admission.authority.records.certificates()}
        if name not in known and self._members.member(name) is None:
            raise BadRequest(f"there is no server {name!r} in this cluster; see: rackwright mesh members")
        await admission.remove(name)
        return {"revocations": self._ports.revocations.current.version}


def _now() -> float:
    """The clock of the membership machine."""
    return asyncio.get_running_loop().time()
