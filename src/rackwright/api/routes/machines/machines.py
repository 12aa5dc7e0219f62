"""The routes that machines call, from their first boot to an installed system.

Anybody may call the registration: it is bounded and rate-limited. All else takes the machine's own token, which is good
for nothing else, or the one-time secret of an install. What machines boot is in `boot.py`.
"""

import base64
import hashlib
from typing import Annotated, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from rackwright.api.auth.limits import Source, check_machine_rate
from rackwright.api.context import Server, Unauthenticated
from rackwright.api.http.problems import TooLarge
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, Invalid, RackwrightError, Rule
from rackwright.domain.installs.disks import MOST_DISKS
from rackwright.domain.machines.install_log import Report
from rackwright.domain.machines.lldp import read_neighbours
from rackwright.domain.machines.mesh_members import MARK
from rackwright.domain.machines.reported_bmc import read_reported_controller
from rackwright.domain.machines.ssh_login import SSH
from rackwright.domain.networks.source_networks import is_link_local
from rackwright.reach.attribute_lines import attribute_lines
from rackwright.store.db.session import GraphSession
from rackwright.store.machines import install_attempts, registration
from rackwright.store.machines.challenges import issue_challenge, spend_challenge
from rackwright.store.machines.keys import read_server_keys

router = APIRouter(tags=["machines"])

INVENTORY_LIMIT = 256 * 1024
"""Bytes of a registration, and of an install's result.

It is more than the most that sledgehammer says: 32 KB of LLDP frames in base64, 60 KB of what is on disks, 560 bytes
for each of `MOST_DISKS` disks, and some KB of all else. A machine with many disks must not be kept out for having them.
"""
BOOT_ID = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9-]+$")
NAME = r"^[a-z0-9][a-z0-9.-]*$"
BOOTENV = Field(min_length=1, max_length=64, pattern=NAME)
MOST_BYTES = 2**50


SIGNATURE = "X-Rackwright-Signature"


class ChallengeOut(BaseModel):
    challenge: str = Field(description="To be sent with a registration, once, and soon")


class RegisterIn(BaseModel):
    """A machine introduces itself. The whole body is signed, as it is sent, by the private half of `key`."""

    model_config = ConfigDict(extra="forbid")

    challenge: str = Field(description="What the server gave out for this registration", max_length=128)
    key: str = Field(description="Ed25519 public key, base64", max_length=64)
    macs: list[str] = Field(min_length=1, max_length=32)
    uuid: str | None = None
    boot_id: str = BOOT_ID
    bootenv: str = BOOTENV
    inventory: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="What it is. Below `lldp`, by link: the last frame that it heard there, without header, in base64."
        " Below `controller`: what the firmware and IPMI tell of its BMC.",
    )


class RegisterOut(BaseModel):
    node_id: int
    token: str
    new: bool
    heartbeat: float = Field(description="Seconds between the heartbeats that are expected")
    ssh_keys: list[str] = Field(description="Public keys of the servers, for SSH to let them in")


class HeartbeatIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    boot_id: str = BOOT_ID
    bootenv: str = BOOTENV


class ProgressIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    stage: str = Field(min_length=1, max_length=64, pattern=NAME)
    percent: int = Field(0, ge=0, le=100, description="Of the whole install")
    bytes: int | None = Field(None, ge=0, le=MOST_BYTES, description="How much of this stage is done")
    bytes_total: int | None = Field(None, ge=1, le=MOST_BYTES, description="How much the stage has in all")
    round: int = Field(1, ge=1, le=100, description="How often the stage has begun: it may be cut off")

    @model_validator(mode="after")
    def _check_bytes(self) -> Self:
        if self.bytes_total is not None and (self.bytes or 0) > self.bytes_total:
            raise ValueError("bytes must be at most bytes_total")
        return self


class ResultIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ok: bool
    error: str = Field("", max_length=4000)
    key: str | None = Field(None, description="Ed25519 public key of the installed system, base64", max_length=64)
    disks: list[JsonValue] | None = Field(
        None, max_length=MOST_DISKS, description="What is on its disks now, if the installer wrote to them"
    )

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str | None) -> str | None:
        if key is not None:
            Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        return key


class LinkLocalSource(RackwrightError):
    """This address counts on one link only: no server can reach you by it. Ask again once you have the one of DHCP."""

    status = 503
    type = "link-local-source"


def registration_message(body: bytes) -> bytes:
    """Return what a machine signs to register: all that it sends.

    It is marked so that it can be no signature for anything else.
    """
    return b"rackwright-register-2\n" + body


def _check_signature(public_key: str, signature: str, body: bytes) -> None:
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), registration_message(body))
    except (InvalidSignature, ValueError):
        raise Invalid(
            f"The header {SIGNATURE} is no signature of this body by its `key`. Sign it as it is sent.", "/key"
        ) from None


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


_bearer = HTTPBearer(auto_error=False)
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def _authenticate_machine(request: Request, credentials: Credentials) -> int:
    """Return the node whose own token this is.

    The token is checked before the body is looked at: a stranger is told nothing about the body.
    """
    if credentials is not None:
        async with _server(request).store.read() as session:
            node_id = await registration.find_node_by_token(session, credentials.credentials)
        if node_id is not None:
            return node_id
    raise Unauthenticated("This takes the machine's own token.")


async def _install_secret(request: Request, source: Source, credentials: Credentials) -> str:
    """Return the secret of an install, as the caller sent it.

    Its holder is a machine like others, and may call as often as they may.
    """
    if credentials is None:
        raise Unauthenticated("This takes the one-time secret of an install.")
    check_machine_rate(request, f"install {hashlib.sha256(credentials.credentials.encode()).hexdigest()}")
    return credentials.credentials


Machine = Annotated[int, Depends(_authenticate_machine)]
Secret = Annotated[str, Depends(_install_secret)]


@router.get("/machine/challenge")
async def get_challenge(request: Request, source: Source, response: Response) -> ChallengeOut:
    """What a machine has to sign, with the rest of its registration: so nobody can send that a second time."""
    response.headers["Cache-Control"] = "no-store"
    return ChallengeOut(challenge=await _server(request).store.change(issue_challenge, actor=f"machine {source}"))


@router.post("/nodes/register", status_code=201)
async def register_machine(
    request: Request,
    source: Source,
    body: RegisterIn,
    signature: Annotated[str, Header(alias=SIGNATURE, max_length=128, description="Of the body, base64")],
) -> RegisterOut:
    """A machine that booted sledgehammer makes itself known. New ones wait in quarantine to be accepted."""
    if is_link_local(source):
        raise LinkLocalSource
    raw_body = await request.body()
    if len(raw_body) > INVENTORY_LIMIT:
        raise TooLarge(f"A registration may have {INVENTORY_LIMIT} bytes; this one has {len(raw_body)}.")
    _check_signature(body.key, signature, raw_body)
    check_machine_rate(request, body.key)
    server, actor = _server(request), f"machine {source}"
    # In a transaction of its own: the challenge of a registration that is refused is used up, too.
    await server.store.change(lambda session: spend_challenge(session, body.challenge), actor=actor)
    machine = registration.Registration(
        body.key,
        body.macs,
        body.uuid,
        body.boot_id,
        body.bootenv,
        _trusted_inventory(body, source),
        pattern=server.discovered_names,
        source=source,
        has_network=not server.simulates,
    )

    async def work(
        session: GraphSession,
    ) -> tuple[registration.RegisteredMachine | registration.RefusedMachine, list[str]]:
        return await registration.register_machine(session, machine), await read_server_keys(session)

    result, keys = await server.store.change_graph(work, actor=actor)
    if isinstance(result, registration.RefusedMachine):
        raise _registration_refused(result, source)
    return RegisterOut(
        node_id=result.node_id, token=result.token, new=result.new, heartbeat=server.heartbeat, ssh_keys=keys
    )


def _registration_refused(held: registration.RefusedMachine, source: str) -> Conflict:
    """Return why a machine is kept out, and what somebody who may accept machines can do about it."""
    if held.fits:
        way_out = f"It is let in once somebody accepts it: rackwright node accept {held.node} --key {held.key}"
    else:
        way_out = f"Nor is {source} an address of it: boot from the one that it was given, or have that freed."
    return Conflict(Rule.KEY_OFFERED, f"{held.node} is not known by your key {held.key}. {way_out}")


def _trusted_inventory(body: RegisterIn, source: str) -> JsonObject:
    """Return what the machine says it is, without what is not for the machine to say."""
    inventory: JsonObject = {**body.inventory, "address": source}
    for reserved in (MARK, SSH):  # the mesh sets the first, and people the second
        inventory.pop(reserved, None)
    if "lldp" in inventory:
        inventory["lldp"] = read_neighbours(inventory["lldp"])
    if "controller" in inventory:
        inventory["bmc"] = read_reported_controller(inventory.pop("controller"))
    return inventory


@router.post("/machine/heartbeat", status_code=204)
async def machine_heartbeat(request: Request, node_id: Machine, body: HeartbeatIn) -> None:
    """The machine is there, and this is what it booted."""
    check_machine_rate(request, f"node {node_id}")
    store = _server(request).store
    if not await store.change(
        lambda session: registration.record_plain_heartbeat(session, node_id, body.boot_id, body.bootenv)
    ):
        await store.change(
            lambda session: registration.record_heartbeat(session, node_id, body.boot_id, body.bootenv),
            actor=f"machine {node_id}",
        )


@router.get("/install/config")
async def get_install_config(
    request: Request, source: Source, secret: Secret, accept: Annotated[str, Header()] = ""
) -> Response:
    """What to install, for whoever holds the secret of the attempt. As plain text it is lines that a shell can read."""
    config = await _server(request).store.change(
        lambda session: install_attempts.read_install_config(session, secret, source), actor="installer"
    )
    if accept == "text/plain":
        return Response("".join(f"{line}\n" for line in attribute_lines(config)), media_type="text/plain")
    return JSONResponse(config)


@router.post("/install/progress", status_code=204)
async def report_install_progress(request: Request, source: Source, secret: Secret, body: ProgressIn) -> None:
    """How far the installer is. It is shown, and told in the log of the run; what was told already changes nothing."""
    report = Report(**body.model_dump())
    await _server(request).store.change(
        lambda session: install_attempts.record_install_progress(session, secret, source, report), actor="installer"
    )


@router.post("/install/result", status_code=204)
async def report_install_result(request: Request, source: Source, secret: Secret, body: ResultIn) -> None:
    """The installer is done, or gave up."""
    if len(await request.body()) > INVENTORY_LIMIT:
        raise TooLarge(f"A result may have {INVENTORY_LIMIT} bytes.")
    await _server(request).store.change(
        lambda session: install_attempts.record_install_result(
            session, secret, source, ok=body.ok, error=body.error, key=body.key, disks=body.disks
        ),
        actor="installer",
    )
