"""The handler of an agent's HTTP requests: for the cluster's CA, for admission, and for a renewed certificate.

Strangers reach the join endpoint and nothing else. A member that does not hold the CA relays a joiner's request to a
member that does. The rules of admission are `mesh/joining/admission.py`; the transport is
`mesh/transport/transport.py`.
"""

from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

from rackwright.mesh.address import parse_address
from rackwright.mesh.errors import BadRequest, MeshError, NoAuthority
from rackwright.mesh.identity.server_identity import OwnIdentity, certificate_pem
from rackwright.mesh.joining.admission import Admission, RateLimit, http_status
from rackwright.mesh.membership.member_view import MemberView, authorities, authority_names, live_records
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.transport import http

MAX_SEEDS = 16


class RelayedRefusal(MeshError):
    """The member that holds the CA refused"""

    code = "relayed"


@dataclass(frozen=True)
class AdmissionPorts:
    """What the HTTP handler uses of its agent."""

    admission: Admission | None
    """None on a server that does not hold the CA"""
    identity: OwnIdentity
    members: MemberView
    tls: SSLContext
    """For calls to other members; it presents this server's certificate"""
    refusals: Refusals


class AdmissionHandler:
    """The HTTP handler of an agent, with rate limits for strangers and members."""

    def __init__(self, ports: AdmissionPorts) -> None:
        self._ports, self._members = ports, ports.members
        self.rate = RateLimit()
        self.renewals = RateLimit()
        """Separate from joins: requests of strangers, at any member, must not keep a member from renewing"""

    @property
    def holds_ca(self) -> bool:
        return self._ports.admission is not None

    def admission(self) -> Admission:
        """Return the admission of this server. Raises NoAuthority, which names the servers that hold the CA."""
        if self._ports.admission:
            return self._ports.admission
        holders = authority_names(self._members)
        raise NoAuthority(f"this server does not hold the cluster's CA; do it on a server that does: {holders}")

    async def answer(self, request: http.Request) -> http.Response:
        try:
            return http.Response(200, await self._answer(request))
        except MeshError as problem:
            where = {"source": request.source, "path": request.path[:64]}
            self._ports.refusals.refuse(problem.code, **where, why=str(problem))
            return http.Response(http_status(problem), {"error": problem.code, "message": str(problem)})

    async def _answer(self, request: http.Request) -> dict[str, Any]:
        if request.path == http.RENEW and request.method == "POST" and request.peer:
            self.renewals.check(request.peer.name)
            return await self.admission().renew(request.peer.name, request.json())
        self.rate.check(f"member {request.peer.name}" if request.peer else request.source)
        if request.path == http.JOIN and request.method == "GET":
            return {"ca": certificate_pem(self._ports.identity.current.ca).decode()}
        if request.path == http.JOIN and request.method == "POST":
            return await self._admit(request)
        raise BadRequest("there is nothing at this path for you")

    async def _admit(self, request: http.Request) -> dict[str, Any]:
        joiner = request.json()
        if self._ports.admission:
            # The joiner's address is unknown here when a member relays the request: only the member says it.
            certificate = await self._ports.admission.admit(joiner, "" if request.peer else request.source)
        elif request.peer is None:
            certificate = await self._relay(joiner)
        else:
            raise NoAuthority("this member does not hold the CA, and what a member relays is not relayed again")
        return {**certificate, "seeds": [record.address for record in live_records(self._members)][:MAX_SEEDS]}

    async def _relay(self, joiner: dict[str, Any]) -> dict[str, Any]:
        """Relay a joiner's request to a member that holds the CA. The request contains proofs and no secret."""
        problem: MeshError = NoAuthority("no member that holds the CA is alive; bring one back, or ask it directly")
        for record in authorities(self._members):
            try:
                response = await http.call(
                    parse_address(record.address), self._ports.tls, "POST", http.JOIN, joiner, record.name
                )
            except MeshError as unreachable:
                problem = unreachable
                continue
            if response.status == 200:
                return response.content
            problem = RelayedRefusal(f"{record.name} says: {str(response.content.get('message'))[:500]}")
        raise problem
