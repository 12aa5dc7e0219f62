"""/api/v2/nodes"""

from datetime import datetime
from typing import Annotated, Any

import asyncssh
from fastapi import APIRouter, Depends, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import Row

from rackwright.api.context import Caller, Forbidden, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import tag
from rackwright.api.http.paging import Asked, page, parameters
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import JsonMap, Key, Line, Mac, NodeName, Uuid, shown
from rackwright.api.http.writing import Editing, Posting, write, write_graph
from rackwright.api.routes.node_roles import NodeRoleOut
from rackwright.domain.attributes import merge
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import NotPermitted
from rackwright.domain.states import NodeRoleState
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.graph.noderole_views import get_noderole_view
from rackwright.store.machines import nodes as stored
from rackwright.store.machines.keys import key_fingerprint, line_fingerprint
from rackwright.store.machines.node_address import approve_address, forget_host_key, pin_host_key, pin_offered_key
from rackwright.store.machines.node_changes import Editor, NodeChanges, edit_node, start_reinstall
from rackwright.store.machines.nodes import NODES, NewNode, NodeRecord, lock_node, select_nodes_for_list
from rackwright.store.machines.registration import accept_machine
from rackwright.store.networks.domains import find_domain_of_node

router = APIRouter(prefix="/nodes", tags=["nodes"])

Quirk = Annotated[str, Field(min_length=1, max_length=63)]


def _public_key(text: str) -> str:
    try:
        key = asyncssh.import_public_key(text)
    except asyncssh.KeyImportError:
        raise ValueError("This is no public key as OpenSSH writes them.") from None
    return key.export_public_key().decode().strip()


HostKey = Annotated[str, Field(max_length=4096), AfterValidator(_public_key)]


class NodeIn(BaseModel):
    """A machine to add. It is available at once; but unless you may accept machines, one that comes with its MAC or
    UUID is kept out until somebody accepts it who may."""

    model_config = ConfigDict(extra="forbid")

    name: NodeName = Field(examples=["n1.rack.example"])
    description: Line = Field("", examples=["Third from the top"])
    deployment: str | None = Field(None, max_length=63, description="Where to put it; the system deployment if none.")
    alive: bool = Field(False, description="It is up already.")
    macs: list[Mac] = Field(default_factory=list, max_length=64, examples=[["52:54:00:12:34:56"]])
    uuid: Uuid | None = None
    hint: JsonMap = Field(default_factory=dict, description="Wishes: they win over what the machine reports.")
    address: Line | None = Field(
        None,
        description="Where a machine is that runs already: the server looks whether it is up.",
        examples=["10.0.0.7"],
    )
    ssh_user: Line | None = Field(None, description="The user the server logs in as; root if none.")
    ssh_port: int | None = Field(None, ge=1, le=65535, description="The port of its SSH server; 22 if none.")
    host_key: HostKey | None = Field(None, description="The host key that it shows, as in an OpenSSH public key file")
    trust_on_first_use: bool = Field(
        False, description="Trust the first host key that is shown there, whoever shows it; for administrators."
    )

    @property
    def wishes(self) -> JsonObject:
        """The hint, with what has a field of its own."""
        ssh = {name: value for name, value in (("user", self.ssh_user), ("port", self.ssh_port)) if value is not None}
        said: JsonObject = {} if self.address is None else {"address": self.address}
        return merge(self.hint, said, {"ssh": {**ssh}} if ssh else {})


class NodeEdit(BaseModel):
    """What people change of a node."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=253, description="A full domain name", examples=["n1.rack.example"])
    description: Line
    alive: bool
    available: bool = Field(description="Whether the annealer may work on it.")
    stay_on: bool = Field(description="Never power it down to save power.")
    hint: JsonMap = Field(description="Wishes: they win over what the machine reports.")
    quirks: list[Quirk] = Field(max_length=64)
    macs: list[Mac] = Field(max_length=64)
    uuid: Uuid | None = None


class AcceptIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str | None = Field(
        None,
        max_length=64,
        description="Fingerprint of the key that the machine offers, if it is not the one that the node is known by.",
        examples=["SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8"],
    )


class HostKeyIn(BaseModel):
    """Which host key the machine shows: itself, or the fingerprint of the one that it was refused for, or whichever it
    shows first."""

    model_config = ConfigDict(extra="forbid")

    host_key: HostKey | None = Field(
        None, description="As in an OpenSSH public key file", examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5..."]
    )
    fingerprint: str | None = Field(
        None,
        max_length=64,
        description="Of the key that the machine showed last, see `offered_host_key`",
        examples=["SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8"],
    )
    trust_on_first_use: bool = Field(
        False, description="Forget the key, and trust the first that is shown; for administrators."
    )

    @model_validator(mode="after")
    def _is_one_of_them(self) -> "HostKeyIn":
        given = (self.host_key is not None, self.fingerprint is not None, self.trust_on_first_use)
        if sum(given) != 1:
            raise ValueError("Give one of host_key, fingerprint and trust_on_first_use.")
        return self


class MoveIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    deployment: str = Field(max_length=63, examples=["web"])


class NodeOut(Resource):
    """A machine, or the phantom that carries a deployment's services."""

    id: int
    name: str = Field(examples=["n1.rack.example"])
    description: str
    admin: bool = Field(description="A server of Rackwright itself.")
    system: bool = Field(description="A phantom: no machine.")
    alive: bool
    available: bool
    deployment: str = Field(examples=["web"])
    deployment_id: int
    bootenv: str = Field(description="What it should boot; only the server decides that.", examples=["local"])
    observed_bootenv: str = Field(description="What it says it booted.")
    boot_id: str | None
    macs: list[str]
    uuid: str | None
    state: str = Field(description="The worst state of its noderoles.", examples=["active"])
    hint: JsonMap
    quirks: list[str]
    stay_on: bool
    groups: list[str] = Field(examples=[["rack:r1"]])
    waiting: bool = Field(description="The machine came by itself, and nobody has accepted it yet.")
    identity_confirmed: bool = Field(
        description="Whether somebody who may accept machines agreed that the machine with these MACs is this node."
    )
    sleep: str | None = Field(
        description="Powered down to save power, or on the way there or back: falling, asleep, waking.",
        examples=["asleep"],
    )
    shutdown_at: datetime | None = Field(description="Since when its system is asked to shut down by itself.")
    offered_key: str | None = Field(
        description="Fingerprint of another key, with which a machine says that it is this node. Accept it, or not."
    )
    offered_from: str | None = Field(description="The address of that machine.", examples=["10.0.0.117"])
    host_key: str | None = Field(description="Fingerprint of the host key that its SSH must show.")
    offered_host_key: str | None = Field(
        description="Fingerprint of another host key that it showed, and was refused for. Pin it, or not."
    )

    @classmethod
    def of(cls, node: NodeRecord) -> "NodeOut":
        return cls.model_validate(_common(node))


class NodeDetail(NodeOut):
    """A node with all that the machine found out about itself."""

    discovery: JsonMap

    @classmethod
    def of(cls, node: NodeRecord) -> "NodeDetail":
        return cls.model_validate({**_common(node), "discovery": shown(node.discovery)})


_LABELS = {int(state): state.label for state in NodeRoleState}


def _common(node: NodeRecord | Row[Any]) -> dict[str, object]:
    return {
        "etag": _tag(node),
        "id": node.id,
        "name": node.name,
        "description": node.description,
        "admin": node.admin,
        "system": node.system,
        "alive": node.alive,
        "available": node.available,
        "deployment": node.deployment,
        "deployment_id": node.deployment_id,
        "bootenv": node.bootenv,
        "observed_bootenv": node.observed_bootenv,
        "boot_id": node.boot_id,
        "macs": [*node.macs],
        "uuid": node.uuid,
        "state": _LABELS[max(node.states, default=0)],  # as `worst` says: the highest
        "hint": shown(node.hint),
        "quirks": [*node.quirks],
        "stay_on": node.stay_on,
        "groups": [*node.groups],
        "waiting": node.waiting,
        "sleep": node.sleep,
        "shutdown_at": node.shutdown_at,
        "identity_confirmed": node.identity_confirmed,
        "offered_key": None if node.offered_key is None else key_fingerprint(node.offered_key),
        "offered_from": node.offered_from,
        "host_key": None if node.host_key is None else line_fingerprint(node.host_key),
        "offered_host_key": None if node.offered_host_key is None else line_fingerprint(node.offered_host_key),
    }


def _tag(node: NodeRecord | Row[Any]) -> str:
    told = (node.name, node.description, node.available, node.deployment_id, node.stay_on, node.hint)
    return tag(node.id, *told, node.quirks, node.macs, node.uuid, node.groups)


@router.get("", response_model=Page[NodeOut])
async def list_nodes(caller: ScopedReader, asked: Annotated[Asked, Depends(parameters(NODES))]) -> Response:
    """All nodes, or those that fit. What machines found out about themselves is only in the single node."""
    async with caller.read(once=True) as (session, visible):
        return await page(session, visible, asked, select_nodes_for_list, NodeOut, _common)


@router.post("", status_code=201, response_model=NodeDetail)
async def create_node(caller: Writer, terms: Posting, body: NodeIn) -> Response:
    """Add a machine. Its discovery roles are bound at once."""

    async def work(session: GraphSession) -> NodeDetail:
        home = await get_deployment(session, body.deployment or SYSTEM, EVERYTHING)
        await caller.authorize(session, home.id)
        await _check_name_is_free_for(session, caller, body.name)
        new = NewNode(
            body.name,
            body.description,
            alive=body.alive,
            deployment=home.name,
            macs=body.macs,
            uuid=body.uuid,
            identity_confirmed=not (body.macs or body.uuid) or await caller.may_accept(session),
        )
        node = await stored.get_node(session, await stored.create_node(session, new), EVERYTHING)
        if body.wishes:
            wanted = _changes(_editable(node).model_copy(update={"hint": body.wishes}))
            editor = Editor(caller.is_administrator, await caller.may_accept(session))
            node = await edit_node(session, node, wanted, editor)
        if caller.is_administrator:
            await approve_address(session, node.id, trust_first_key=body.trust_on_first_use)
        elif body.trust_on_first_use:
            raise _not_trusting(node.name)
        if body.host_key is not None:
            await pin_host_key(session, node, body.host_key)
        return NodeDetail.of(await stored.get_node(session, node.id, EVERYTHING))

    return await write_graph(caller, terms, work, status=201, location=lambda made: f"/api/v2/nodes/{_id(made)}")


def _not_trusting(node: str) -> NotPermitted:
    return NotPermitted(
        "Only an administrator may have a host key trusted that nobody has compared. Give the key: "
        f"rackwright node host-key {node} FILE"
    )


async def _check_name_is_free_for(session: Session, caller: Caller, name: str) -> None:
    """A name in a domain is for those who may write where the domain belongs; any other is served by nobody."""
    domain = await find_domain_of_node(session, name)
    if domain is None:
        return
    try:
        await caller.authorize(session, domain.deployment_id)
    except Forbidden:
        raise Forbidden(
            f"Names in {domain.name} belong to another deployment. Choose a name in a domain of yours, or ask an "
            f"administrator for one: rackwright domain create NAME --deployment DEPLOYMENT"
        ) from None


def _id(made: BaseModel) -> int:
    assert isinstance(made, NodeOut)
    return made.id


@router.get("/{node}", response_model=NodeDetail)
async def get_node(caller: ScopedReader, node: Key, fields: Fields) -> Response:
    """One node."""
    async with caller.read(once=True) as (session, visible):
        return answer(NodeDetail.of(await stored.get_node(session, node, visible)), fields=fields)


def _editable(node: NodeRecord) -> NodeEdit:
    return NodeEdit.model_construct(
        name=node.name,
        description=node.description,
        alive=node.alive,
        available=node.available,
        stay_on=node.stay_on,
        hint=node.hint,
        quirks=node.quirks,
        macs=node.macs,
        uuid=node.uuid,
    )


def _changes(edit: NodeEdit) -> NodeChanges:
    return NodeChanges(
        description=edit.description,
        alive=edit.alive,
        available=edit.available,
        stay_on=edit.stay_on,
        quirks=edit.quirks,
        hint=edit.hint,
        macs=edit.macs,
        uuid=edit.uuid,
    )


@router.patch(
    "/{node}",
    response_model=NodeDetail,
    openapi_extra=patch_body(NodeEdit, {"description": "Third from the top", "stay_on": True}),
)
async def update_node(caller: Writer, terms: Editing, node: Key, request: Request) -> Response:
    """Change a node: its name, description, flags, wishes, quirks, MACs and UUID."""
    patch = await read_patch(request)

    async def work(session: Session) -> NodeDetail:
        found = await lock_node(session, node)
        await caller.authorize(session, found.deployment_id)
        terms.check(NodeOut.of(found), f"node {found.name}")
        edit = patch.apply(_editable(found))
        wanted = _changes(edit)
        if edit.name != found.name:
            await _check_name_is_free_for(session, caller, edit.name)
            found = await stored.rename_node(session, found, edit.name)
        if found.waiting and wanted.available:
            await caller.authorize_accepting(session)
        editor = Editor(caller.is_administrator, await caller.may_accept(session))
        return NodeDetail.of(await edit_node(session, found, wanted, editor))

    return await write(caller, terms, work)


@router.delete("/{node}", status_code=204)
async def delete_node(caller: Writer, terms: Editing, node: Key) -> Response:
    """Remove a machine, with its noderoles."""

    async def work(session: GraphSession) -> None:
        found = await lock_node(session, node)
        await caller.authorize(session, found.deployment_id)
        terms.check(NodeOut.of(found), f"node {found.name}")
        await stored.delete_node(session, found.id)

    return await write_graph(caller, terms, work)


@router.post("/{node}/accept", response_model=NodeDetail)
async def accept_node(caller: Writer, terms: Posting, node: Key, body: AcceptIn | None = None) -> Response:
    """Let a machine in: from now on the annealer may work on it. One that offers another key than the node is known by
    is let in with that key, which then is the node's."""
    key = None if body is None else body.key

    async def work(session: Session) -> NodeDetail:
        found = await lock_node(session, node)
        await caller.authorize(session, found.deployment_id)
        if found.waiting or not found.identity_confirmed or key is not None:
            await caller.authorize_accepting(session)
        terms.check(NodeOut.of(found), f"node {found.name}")
        await accept_machine(session, found.id, key)
        return NodeDetail.of(await stored.get_node(session, found.id, EVERYTHING))

    return await write(caller, terms, work)


@router.put("/{node}/host_key", status_code=204)
async def set_node_host_key(caller: Writer, terms: Editing, node: Key, body: HostKeyIn) -> Response:
    """Say which host key the machine shows over SSH. The server logs in nowhere else. A node that was set aside because
    its machine showed just this key is set aside no longer."""

    async def work(session: Session) -> None:
        found = await lock_node(session, node)
        await caller.authorize(session, found.deployment_id)
        terms.check(NodeOut.of(found), f"node {found.name}")
        if body.host_key is not None:
            await pin_host_key(session, found, body.host_key)
        elif body.fingerprint is not None:
            await pin_offered_key(session, found, body.fingerprint)
        elif caller.is_administrator:
            await forget_host_key(session, found)
        else:
            raise _not_trusting(found.name)

    return await write(caller, terms, work)


@router.post("/{node}/move", response_model=NodeDetail)
async def move_node(caller: Writer, terms: Posting, node: Key, body: MoveIn) -> Response:
    """Put a node into another deployment."""

    async def work(session: GraphSession) -> NodeDetail:
        found = await lock_node(session, node)
        target = await get_deployment(session, body.deployment, EVERYTHING)
        await caller.authorize(session, found.deployment_id)
        await caller.authorize(session, target.id)
        terms.check(NodeOut.of(found), f"node {found.name}")
        await stored.move_node(session, found.id, target.id)
        return NodeDetail.of(await stored.get_node(session, found.id, EVERYTHING))

    return await write_graph(caller, terms, work)


@router.post("/{node}/reinstall", response_model=NodeRoleOut)
async def reinstall_node(caller: Writer, terms: Posting, node: Key) -> Response:
    """Install the node's operating system anew. All that is on its disks is lost. Answers with the noderole that does
    it."""

    async def work(session: Session) -> NodeRoleOut:
        found = await lock_node(session, node)
        await caller.authorize(session, found.deployment_id)
        terms.check(NodeOut.of(found), f"node {found.name}")
        return NodeRoleOut.of(await get_noderole_view(session, await start_reinstall(session, found), EVERYTHING))

    return await write(caller, terms, work)
