"""/api/v2/nodes: machines and phantoms, how they are added, changed, accepted, moved and installed anew."""

from datetime import datetime
from typing import Annotated, Any

import asyncssh
from fastapi import APIRouter, Depends, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import Row

from rackwright.api.context import Caller, Forbidden, ScopedReader, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import JsonMap, Key, Line, Mac, NodeName, Uuid, mask_secrets
from rackwright.api.http.writing import EditTerms, PostTerms, write, write_graph
from rackwright.domain.attributes import merge
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import NotPermitted
from rackwright.domain.states import NodeRoleState
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.machines import nodes as stored
from rackwright.store.machines.keys import key_fingerprint, line_fingerprint
from rackwright.store.machines.node_address import approve_address, forget_host_key, pin_host_key, pin_offered_key
from rackwright.store.machines.node_changes import Editor, NodeChanges, edit_node
from rackwright.store.machines.nodes import NODES, NewNode, NodeRecord, lock_node, select_nodes_for_list
from rackwright.store.machines.proposed_bmcs import read_proposed_bmc
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
        """Return the hint, with the wishes that have a field of their own."""
        ssh = {name: value for name, value in (("user", self.ssh_user), ("port", self.ssh_port)) if value is not None}
        address: JsonObject = {} if self.address is None else {"address": self.address}
        return merge(self.hint, address, {"ssh": {**ssh}} if ssh else {})


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
    def _check_one_is_given(self) -> "HostKeyIn":
        choices = (self.host_key is not None, self.fingerprint is not None, self.trust_on_first_use)
        if sum(choices) != 1:
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
        return cls.model_validate(_node_fields(node))


class ProposedBmcOut(BaseModel):
    kind: str = Field(examples=["ipmi"])
    address: str = Field(examples=["192.0.2.7"])


class NodeDetail(NodeOut):
    """A node with all that the machine found out about itself."""

    discovery: JsonMap
    proposed_bmc: ProposedBmcOut | None = Field(
        description="Where the machine says that its BMC is. Nothing is sent there before an administrator has set it;"
        " null: one is set, the machine says nothing of it, or the address is known to be somebody else's."
    )

    @classmethod
    async def read(cls, session: Session, node: NodeRecord) -> "NodeDetail":
        proposed = await read_proposed_bmc(session, node)
        found = {
            "discovery": mask_secrets(node.discovery),
            "proposed_bmc": None if proposed is None else {"kind": proposed.kind, "address": proposed.address},
        }
        return cls.model_validate({**_node_fields(node), **found})


_LABELS = {int(state): state.label for state in NodeRoleState}


def _node_fields(node: NodeRecord | Row[Any]) -> dict[str, object]:
    return {
        "etag": _etag(node),
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
        "state": _LABELS[max(node.states, default=0)],  # the highest is the worst, as in `worst`
        "hint": mask_secrets(node.hint),
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


def _etag(node: NodeRecord | Row[Any]) -> str:
    decided = (node.name, node.description, node.available, node.deployment_id, node.stay_on, node.hint)
    return make_etag(node.id, *decided, node.quirks, node.macs, node.uuid, node.groups)


@router.get("", response_model=Page[NodeOut])
async def list_nodes(caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(NODES))]) -> Response:
    """All nodes, or those that fit. What machines found out about themselves is only in the single node."""
    async with caller.read(once=True) as (session, visible):
        return await read_page(session, visible, query, select_nodes_for_list, NodeOut, _node_fields)


@router.post("", status_code=201, response_model=NodeDetail)
async def create_node(caller: Writer, terms: PostTerms, body: NodeIn) -> Response:
    """Add a machine. Its discovery roles are bound at once."""

    async def work(session: GraphSession) -> NodeDetail:
        deployment = await get_deployment(session, body.deployment or SYSTEM, EVERYTHING)
        await caller.authorize(session, deployment.id)
        await _check_name_allowed(session, caller, body.name)
        new = NewNode(
            body.name,
            body.description,
            alive=body.alive,
            deployment=deployment.name,
            macs=body.macs,
            uuid=body.uuid,
            identity_confirmed=not (body.macs or body.uuid) or await caller.may_accept(session),
        )
        node = await stored.get_node(session, await stored.create_node(session, new), EVERYTHING)
        if body.wishes:
            changes = _changes_of(_editable(node).model_copy(update={"hint": body.wishes}))
            editor = Editor(caller.is_administrator, await caller.may_accept(session))
            node = await edit_node(session, node, changes, editor)
        if caller.is_administrator:
            await approve_address(session, node.id, trust_first_key=body.trust_on_first_use)
        elif body.trust_on_first_use:
            raise _refuse_trust(node.name)
        if body.host_key is not None:
            await pin_host_key(session, node, body.host_key)
        return await NodeDetail.read(session, await stored.get_node(session, node.id, EVERYTHING))

    return await write_graph(caller, terms, work, status=201, location=lambda node: f"/api/v2/nodes/{_id_of(node)}")


def _refuse_trust(node: str) -> NotPermitted:
    """Return the refusal to trust a host key that nobody has compared."""
    return NotPermitted(
        "Only an administrator may have a host key trusted that nobody has compared. Give the key: "
        f"rackwright node host-key {node} FILE"
    )


async def _check_name_allowed(session: Session, caller: Caller, name: str) -> None:
    """Refuse a name in a domain of a deployment that the caller may not write in.

    A name in no domain is served by nobody, so anybody may use it.
    """
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


def _id_of(node: BaseModel) -> int:
    assert isinstance(node, NodeOut)
    return node.id


@router.get("/{node}", response_model=NodeDetail)
async def get_node(caller: ScopedReader, node: Key, fields: Fields) -> Response:
    """One node."""
    async with caller.read() as (session, visible):
        return answer(await NodeDetail.read(session, await stored.get_node(session, node, visible)), fields=fields)


def _editable(node: NodeRecord) -> NodeEdit:
    """Return what people may edit of a node, as it is now."""
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


def _changes_of(edit: NodeEdit) -> NodeChanges:
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
async def update_node(caller: Writer, terms: EditTerms, node: Key, request: Request) -> Response:
    """Change a node: its name, description, flags, wishes, quirks, MACs and UUID."""
    patch = await read_patch(request)

    async def work(session: Session) -> NodeDetail:
        record = await lock_node(session, node)
        await caller.authorize(session, record.deployment_id)
        terms.check(NodeOut.of(record), f"node {record.name}")
        edit = patch.apply(_editable(record))
        changes = _changes_of(edit)
        if edit.name != record.name:
            await _check_name_allowed(session, caller, edit.name)
            record = await stored.rename_node(session, record, edit.name)
        if record.waiting and changes.available:
            await caller.authorize_accepting(session)
        editor = Editor(caller.is_administrator, await caller.may_accept(session))
        return await NodeDetail.read(session, await edit_node(session, record, changes, editor))

    return await write(caller, terms, work)


@router.delete("/{node}", status_code=204)
async def delete_node(caller: Writer, terms: EditTerms, node: Key) -> Response:
    """Remove a machine, with its noderoles."""

    async def work(session: GraphSession) -> None:
        record = await lock_node(session, node)
        await caller.authorize(session, record.deployment_id)
        terms.check(NodeOut.of(record), f"node {record.name}")
        await stored.delete_node(session, record.id)

    return await write_graph(caller, terms, work)


@router.post("/{node}/accept", response_model=NodeDetail)
async def accept_node(caller: Writer, terms: PostTerms, node: Key, body: AcceptIn | None = None) -> Response:
    """Let a machine in: from now on the annealer may work on it. One that offers another key than the node is known by
    is let in with that key, which then is the node's."""
    key = None if body is None else body.key

    async def work(session: Session) -> NodeDetail:
        record = await lock_node(session, node)
        await caller.authorize(session, record.deployment_id)
        if record.waiting or not record.identity_confirmed or key is not None:
            await caller.authorize_accepting(session)
        terms.check(NodeOut.of(record), f"node {record.name}")
        await accept_machine(session, record.id, key)
        return await NodeDetail.read(session, await stored.get_node(session, record.id, EVERYTHING))

    return await write(caller, terms, work)


@router.put("/{node}/host_key", status_code=204)
async def set_node_host_key(caller: Writer, terms: EditTerms, node: Key, body: HostKeyIn) -> Response:
    """Say which host key the machine shows over SSH. The server logs in nowhere else. A node that was set aside because
    its machine showed just this key is set aside no longer."""

    async def work(session: Session) -> None:
        record = await lock_node(session, node)
        await caller.authorize(session, record.deployment_id)
        terms.check(NodeOut.of(record), f"node {record.name}")
        if body.host_key is not None:
            await pin_host_key(session, record, body.host_key)
        elif body.fingerprint is not None:
            await pin_offered_key(session, record, body.fingerprint)
        elif caller.is_administrator:
            await forget_host_key(session, record)
        else:
            raise _refuse_trust(record.name)

    return await write(caller, terms, work)


@router.post("/{node}/move", response_model=NodeDetail)
async def move_node(caller: Writer, terms: PostTerms, node: Key, body: MoveIn) -> Response:
    """Put a node into another deployment."""

    async def work(session: GraphSession) -> NodeDetail:
        record = await lock_node(session, node)
        target = await get_deployment(session, body.deployment, EVERYTHING)
        await caller.authorize(session, record.deployment_id)
        await caller.authorize(session, target.id)
        terms.check(NodeOut.of(record), f"node {record.name}")
        await stored.move_node(session, record.id, target.id)
        return await NodeDetail.read(session, await stored.get_node(session, record.id, EVERYTHING))

    return await write_graph(caller, terms, work)
