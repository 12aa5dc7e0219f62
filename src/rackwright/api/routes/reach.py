"""/api/v2/nodes/{node}/reach and /server_keys: whether the server can log in to a machine, and with which keys."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from rackwright.annealer.installs import read_hammer_node
from rackwright.annealer.reachability import ACTOR, probe_node
from rackwright.api.context import Person, Writer
from rackwright.api.http.answers import answer
from rackwright.api.http.types import Key
from rackwright.api.http.writing import PostTerms
from rackwright.api.routes.nodes import NodeOut
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.machines.install import LOCAL
from rackwright.hammers.base import HammerFailed
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.machines.keys import line_fingerprint, read_server_key_lines
from rackwright.store.machines.node_address import retry_access
from rackwright.store.machines.nodes import get_node, lock_node
from rackwright.store.machines.registration import record_answer, record_first_boot, record_heartbeat

router = APIRouter(tags=["nodes"])


class ReachOut(BaseModel):
    """What came of a look at a machine."""

    node: str
    reached: bool
    reason: str = Field(description="Why it was not reached, and what to do.")
    host_key: str | None = Field(description="Fingerprint of the host key that it must show.")
    offered_host_key: str | None = Field(description="Fingerprint of the one that it showed, if that is refused.")


class ServerKeyOut(BaseModel):
    server: str = Field(examples=["admin.rack.example"])
    key: str = Field(description="For the authorized keys of the user whom the server logs in as.")
    fingerprint: str


class ServerKeys(BaseModel):
    items: list[ServerKeyOut]


@router.post("/nodes/{node}/reach", response_model=ReachOut)
async def reach_node(caller: Writer, terms: PostTerms, node: Key) -> Response:
    """Have the server look at the machine now: whether it is up, lets the server in, and shows the right host key."""

    async def check(session: Session) -> int:
        record = await lock_node(session, node)
        await caller.authorize(session, record.deployment_id)
        terms.check(NodeOut.of(record), f"node {record.name}")
        if record.system:
            raise Conflict(Rule.PHANTOM, f"{record.name} is a phantom node; there is no machine to reach.")
        await emit(session, "node.reach_asked", record.id, node_id=record.id, deployment_id=record.deployment_id)
        return record.id

    node_id = await caller.change(check)
    reason, is_answering = await _look_at_node(caller, node_id)

    async def record_result(session: Session) -> ReachOut:
        await caller.authorize(session, (await get_node(session, node_id, EVERYTHING)).deployment_id)
        if is_answering:
            await record_answer(session, node_id)
        record = NodeOut.of(await get_node(session, node_id, EVERYTHING))
        return ReachOut(
            node=record.name,
            reached=not reason,
            reason=reason,
            host_key=record.host_key,
            offered_host_key=record.offered_host_key,
        )

    return answer(await caller.change(record_result))


async def _look_at_node(caller: Writer, node_id: int) -> tuple[str, bool]:
    """Return why a node is not reached, empty if it is; and whether it answers all the same."""
    server = caller.server
    if node_id == server.claimant.node_id:
        return "", False
    async with server.store.read() as session:
        node = await read_hammer_node(session, node_id)
    try:
        seen = await probe_node(server.installs.reach, node)
    except HammerFailed as error:
        return str(error), error.answers

    async def record_look(session: Session) -> None:
        await record_first_boot(session, node_id, seen.boot_id)
        if (await get_node(session, node_id, EVERYTHING)).observed_bootenv == LOCAL:
            await record_heartbeat(session, node_id, seen.boot_id, LOCAL)
        await retry_access(session, node_id)

    await server.store.change(record_look, actor=ACTOR)
    return "", False


@router.get("/server_keys", response_model=ServerKeys)
async def list_server_keys(caller: Person) -> Response:
    """The public keys by which machines let the servers in: authorize all of them on a machine to be added."""
    async with caller.server.store.read() as session:
        lines = await read_server_key_lines(session)
    keys = [ServerKeyOut(server=server, key=key, fingerprint=line_fingerprint(key)) for server, key in lines]
    return answer(ServerKeys(items=keys))
