"""/api/v2/nodes/{node}/power, /bmc and /boot_device: switching machines by hand, and how their controllers are reached.

These are the routes that call machines' controllers.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rackwright.api.context import Administrator, Caller, ScopedReader, Writer
from rackwright.api.http.answers import answer
from rackwright.api.http.types import Key
from rackwright.api.http.writing import EditTerms, PostTerms, Terms, find_replay, write
from rackwright.api.routes.nodes import NodeOut
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, RackwrightError, Rule
from rackwright.domain.machines.power import PowerOrder
from rackwright.hammers.base import BootDevice, HammerFailed, Power
from rackwright.hammers.registry import bmc_kinds
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.machines.nodes import NodeRecord, get_node, lock_node, update_node

router = APIRouter(prefix="/nodes/{node}", tags=["power"])


class BmcFailed(RackwrightError):
    """The machine's controller did not do what it was asked."""

    status = 502
    type = "hammer-failed"


class PowerAction(StrEnum):
    ON = "on"
    OFF = "off"
    RESET = "reset"
    CYCLE = "cycle"


@dataclass(frozen=True)
class BmcKind:
    """The type of a BMC's kind: one of those that the files of the hammers declare."""

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema([*bmc_kinds()])


class BmcIn(BaseModel):
    """How a machine's controller is reached. The password is sealed, and never shown again."""

    model_config = ConfigDict(extra="forbid")

    kind: Annotated[str, BmcKind()] = bmc_kinds()[0]
    address: str = Field(pattern=r"^[0-9A-Za-z._:\[\]-]{1,253}$", examples=["192.0.2.7", "bmc-n1.example:8443"])
    username: str = Field("", max_length=64, pattern=r"^[!-~]*$")
    password: str = Field("", max_length=256)
    plain: bool = Field(False, description="Redfish: plain HTTP, on a network of its own")
    insecure: bool = Field(False, description="Redfish: take any certificate")
    cipher_suite: Literal[17, 3] = Field(17, description="IPMI: 3 is weak, for an old BMC on a network of its own")


class PowerIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: PowerAction


class BootDeviceIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    device: BootDevice


class PowerOut(BaseModel):
    node: str
    power: Power


@router.put("/bmc", status_code=204)
async def set_bmc(caller: Administrator, terms: EditTerms, node: Key, body: BmcIn) -> Response:
    """Say how the machine's controller is reached."""

    async def work(session: Session) -> None:
        record = await _lock_and_check(session, caller, terms, node)
        bmc: JsonObject = body.model_dump(exclude={"password"})
        bmc["password"] = session.store.vault.seal(body.password)
        await update_node(session, record.id, {"hint": {**record.hint, "bmc": bmc}})

    return await write(caller, terms, work)


@router.get("/power", response_model=PowerOut)
async def get_power(caller: ScopedReader, node: Key) -> Response:
    """Whether the machine is on, as its controller says just now."""
    async with caller.read() as (session, visible):
        record = await get_node(session, node, visible)
    _check_is_machine(record)
    return answer(PowerOut(node=record.name, power=await _carry_out(caller, record.id, PowerOrder.STATUS)))


@router.post("/power", response_model=PowerOut)
async def switch_power(caller: Writer, terms: PostTerms, node: Key, body: PowerIn) -> Response:
    """Switch a machine on or off, or restart it. What runs on it is not asked."""

    return await _switch_machine(caller, terms, node, PowerOrder(body.action.value))


@router.post("/boot_device", response_model=PowerOut)
async def choose_boot_device(caller: Writer, terms: PostTerms, node: Key, body: BootDeviceIn) -> Response:
    """What the machine boots from the next time, and only then."""
    return await _switch_machine(caller, terms, node, PowerOrder(f"boot {body.device}"))


async def _switch_machine(caller: Caller, terms: Terms, key: str, order: PowerOrder) -> Response:
    """Have the controller act, outside of any transaction, for it may take long; record it once it is done."""

    async def check(session: Session) -> int:
        return (await _lock_and_check(session, caller, terms, key)).id

    replay = await find_replay(caller, terms)
    if replay is not None:
        return replay
    id = await caller.change(check)
    power = await _carry_out(caller, id, order)

    async def record_action(session: Session) -> PowerOut:
        record = await get_node(session, id, EVERYTHING)
        await caller.authorize(session, record.deployment_id)
        await emit(
            session, "node.power", id, node_id=id, deployment_id=record.deployment_id, data={"asked": order.value}
        )
        return PowerOut(node=record.name, power=power)

    return await write(caller, Terms(None, terms.idempotency_key, terms.request_digest), record_action)


async def _lock_and_check(session: Session, caller: Caller, terms: Terms, key: str) -> NodeRecord:
    """Return the machine, locked, if the caller may change it and saw its current version."""
    record = await lock_node(session, key)
    await caller.authorize(session, record.deployment_id)
    terms.check(NodeOut.of(record), f"node {record.name}")
    _check_is_machine(record)
    return record


def _check_is_machine(node: NodeRecord) -> None:
    """Refuse a phantom node."""
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node and has no power to switch.")


async def _carry_out(caller: Caller, node_id: int, order: PowerOrder) -> Power:
    """Have the controller act, from a server that reaches it; turn its failure into a 502."""
    try:
        return await caller.server.power_orders.carry_out(node_id, order)
    except HammerFailed as error:
        raise BmcFailed(str(error)) from None
