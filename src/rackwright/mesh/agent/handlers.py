"""What may be asked of an agent: by strangers and members over HTTP, and by people on the same server.

Strangers reach the join endpoint and nothing else. Answers are made here; the carriages are
`mesh/transport/transport.py` and `mesh/control.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackwright.mesh.address import parse_address
from rackwright.mesh.datastore.datastore_gossip import Part, hint_of
from rackwright.mesh.errors import BadRequest, MeshError, NoAuthority, TooMany
from rackwright.mesh.health.software import software_of
from rackwright.mesh.identity.server_identity import certificate_pem, fingerprint
from rackwright.mesh.joining.admission import INVITE_SECONDS, TOKEN_SECONDS, Admission, Rate, status_of
from rackwright.mesh.joining.handover import ensure_key
from rackwright.mesh.membership.member import LIVE, MemberRecord, State
from rackwright.mesh.runs.run_handlers import RunDesk
from rackwright.mesh.transport import http

if TYPE_CHECKING:
    from rackwright.mesh.agent.agent import Agent

AUTHORITY_LABEL = "rackwright/authority"
MAX_WATCHERS = 64
MAX_SEEDS = 16


class Desk:
    def __init__(self, agent: "Agent") -> None:
        self.agent = agent
        self.rate = Rate()
        self.renewals = Rate()
        """Apart from joins: what strangers ask, at any member, must not keep a member from renewing its certificate."""
        self.runs = RunDesk(agent)
        self.ssh_key = agent.folder / "ssh_key"
        self.admission: Admission | None = None
        if agent.authority:
            self.admission = Admission(
                agent.authority,
                self._live,
                lambda signed: agent.take_revocations(signed, agent.name),
                [self.ssh_key],
                agent.log,
            )

    # Over HTTP

    async def answer(self, request: http.Request) -> http.Response:
        try:
            return http.Response(200, await self._answer(request))
        except MeshError as problem:
            self.agent.refuse(problem.code, source=request.source, path=request.path[:64], why=str(problem))
            return http.Response(status_of(problem), {"error": problem.code, "message": str(problem)})

    async def _answer(self, request: http.Request) -> dict[str, Any]:
        if request.path == http.RENEW and request.method == "POST" and request.peer:
            self.renewals.check(request.peer.name)
            return await self._admission().renew(request.peer.name, request.json())
        self.rate.check(f"member {request.peer.name}" if request.peer else request.source)
        if request.path == http.JOIN and request.method == "GET":
            return {"ca": certificate_pem(self.agent.identity.ca).decode()}
        if request.path == http.JOIN and request.method == "POST":
            return await self._admit(request)
        raise BadRequest("there is nothing at this path for you")

    async def _admit(self, request: http.Request) -> dict[str, Any]:
        wish = request.json()
        if self.admission:
            # What a member carries here, that member says: where the joiner is we have not seen.
            answer = await self.admission.admit(wish, "" if request.peer else request.source)
        elif request.peer is None:
            answer = await self._relay(wish)
        else:
            raise NoAuthority("this member does not hold the CA, and what a member relays is not relayed again")
        return {**answer, "seeds": [record.address for record in self._alive()][:MAX_SEEDS]}

    async def _relay(self, wish: dict[str, Any]) -> dict[str, Any]:
        """Carry a joiner's request to a member that holds the CA. It holds proofs and no secret."""
        problem: MeshError = NoAuthority("no member that holds the CA is alive; bring one back, or ask it directly")
        for record in self.authorities():
            try:
                answer = await http.call(
                    parse_address(record.address), self.agent.contexts.client, "POST", http.JOIN, wish, record.name
                )
            except MeshError as unreachable:
                problem = unreachable
                continue
            if answer.status == 200:
                return answer.content
            problem = Relayed(f"{record.name} says: {str(answer.content.get('message'))[:500]}")
        raise problem

    # On the control socket

    async def ask(
        self, verb: str, wish: dict[str, Any]
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]] | AsyncIterator[dict[str, Any] | bytes]:
        verbs = {"members": self.members, "status": self.status, "metrics": self._metrics, "leave": self._leave}
        if verb in verbs:
            return verbs[verb]()
        if verb == "watch":
            return self._watch()
        answer = await self.runs.ask(verb, wish)
        if answer is not None:
            return answer
        if verb == "datastore":
            return await self.agent.datastore.describe()
        if verb == "snapshot":
            return {"snapshot": str(await self.agent.datastore.snapshot())}
        if verb == "recover":
            named = wish.get("snapshot")
            return await self.agent.datastore.recover(Path(named) if named else None)
        admission = self._admission()
        if verb == "invite":
            return await self._invite(admission, wish)
        if verb == "token":
            address, seconds = str(self.agent.settings.advertise), int(wish.get("seconds", TOKEN_SECONDS))
            return {"token": await admission.token(wish["name"], address, seconds, str(wish.get("address") or ""))}
        if verb == "remove":
            return await self._remove(admission, wish["name"])
        raise BadRequest(f"the agent does not know {verb!r}; is the command newer than the agent? restart the agent")

    def members(self) -> dict[str, Any]:
        entries = sorted(self.agent.swim.members(), key=lambda entry: entry.name)
        return {"members": [self.describe(entry.name, entry.record) for entry in entries]}

    def describe(self, name: str, record: MemberRecord) -> dict[str, Any]:
        entry = self.agent.swim.member(name)
        software = software_of(record)
        return {
            "name": name,
            "address": record.address,
            "state": entry.state.name.lower() if entry else "removed",
            # Nobody here has seen anything before this agent started, itself included.
            "seconds": round(self.agent.now - max(entry.since, self.agent.began), 3) if entry else 0.0,
            "incarnation": record.incarnation,
            "session": record.session,
            "labels": dict(record.labels),
            "datastore": hint_of(record).part.name.lower(),
            "checks": software.shown(),
            "reasons": software.reasons(),
            "checks_left_out": software.left_out,
            "self": name == self.agent.name,
        }

    def status(self) -> dict[str, Any]:
        agent = self.agent
        states = [entry.state for entry in agent.swim.members()]
        return {
            "name": agent.name,
            "address": str(agent.settings.advertise),
            "ca": fingerprint(agent.identity.ca),
            "holds_ca": agent.authority is not None,
            "authorities": [record.name for record in self.authorities()],
            "certificate_expires": agent.identity.expires.isoformat(),
            "revocations": agent.revocations.current.version,
            "awareness": agent.swim.awareness,
            "links": sum(len(held) for held in agent.transport.links.values()),
            "members": {state.name.lower(): states.count(state) for state in State},
            "failing_parts": agent.failing_parts(),
            "datastore": sorted(record.name for record in self._alive() if hint_of(record).part is Part.VOTER),
        }

    def _metrics(self) -> dict[str, Any]:
        return {"text": self.agent.metrics.text().decode()}

    def _leave(self) -> dict[str, Any]:
        self.agent.end()
        return {}

    async def _watch(self) -> AsyncIterator[dict[str, Any]]:
        """The members now, then every event."""
        if len(self.agent.watchers) >= MAX_WATCHERS:
            raise TooMany("too many are watching; end one of them first")
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(1024)
        self.agent.watchers.add(queue)
        try:
            yield self.members()
            while True:
                try:
                    async with asyncio.timeout(1.0):
                        told = await queue.get()
                except TimeoutError:
                    # Time passes, and a watcher who has gone is to be noticed.
                    told = {"event": "still_here"}
                yield {**told, **self.members()}
        finally:
            self.agent.watchers.discard(queue)

    async def _invite(self, admission: Admission, wish: dict[str, Any]) -> dict[str, Any]:
        await admission.invite(
            wish["name"],
            wish["address"],
            wish["host_key"],
            int(wish["port"]),
            wish["user"],
            wish["folder"],
            int(wish.get("seconds", INVITE_SECONDS)),
        )
        line = ensure_key(self.ssh_key)
        ca = fingerprint(self.agent.identity.ca)
        return {"authorized_key": line, "address": str(self.agent.settings.advertise), "ca": ca}

    async def _remove(self, admission: Admission, name: str) -> dict[str, Any]:
        if name == self.agent.name:
            raise BadRequest(f"{name} holds the CA and cannot remove itself; it can leave with: rackwright mesh leave")
        known = {issued.name for issued in await admission.authority.records.certificates()}
        if name not in known and self.agent.swim.member(name) is None:
            raise BadRequest(f"there is no server {name!r} in this cluster; see: rackwright mesh members")
        await admission.remove(name)
        return {"revocations": self.agent.revocations.current.version}

    # What is known

    def authorities(self) -> list[MemberRecord]:
        """Living members that say they hold the CA. Whoever lies about it cannot sign."""
        return [record for record in self._alive() if dict(record.labels).get(AUTHORITY_LABEL) == "yes"]

    def _admission(self) -> Admission:
        if self.admission:
            return self.admission
        held = " or ".join(record.name for record in self.authorities()) or "none that is alive"
        raise NoAuthority(f"this server does not hold the cluster's CA; do it on a server that does: {held}")

    def _alive(self) -> list[MemberRecord]:
        return [entry.record for entry in self.agent.swim.members() if entry.state in LIVE]

    def _live(self) -> set[str]:
        return {record.name for record in self._alive()}


class Relayed(MeshError):
    """The member that holds the CA refused"""

    code = "relayed"
