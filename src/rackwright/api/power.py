"""/api/v2/nodes/{node}/power and /bmc: switching machines by hand, and how their controllers are reached."""

from enum import StrEnum
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rackwright.annealer.installs import hammer_node
from rackwright.api.context import Administrator, Caller, Reader, Writer
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import RackwrightError
from rackwright.hammers.base import BootDevice, Hammer, HammerFailed, HammerNode
from rackwright.store.nodes import get_node, update_node
from rackwright.store.session import Session

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


class BmcIn(BaseModel):
    """How a machine's controller is reached. The password is sealed, and never shown again."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["redfish", "qemu"] = "redfish"
    address: str = Field(pattern=r"^[0-9A-Za-z._:\[\]-]{1,253}$", examples=["192.0.2.7", "bmc-n1.example:8443"])
    username: str = Field("", max_length=64, pattern=r"^[!-~]*$")
    password: str = Field("", max_length=256)
    plain: bool = Field(False, description="Plain HTTP, on a network of its own")
    insecure: bool = Field(False, description="Take any certificate")


class PowerIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: PowerAction


class BootDeviceIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    device: BootDevice


class PowerOut(BaseModel):
    power: str


@router.put("/bmc", status_code=204)
async def set_bmc(caller: Administrator, node: str, body: BmcIn) -> None:
    async def work(session: Session) -> None:
        found = await get_node(session, node)
        bmc: JsonObject = body.model_dump(exclude={"password"})
        bmc["password"] = session.store.vault.seal(body.password)
        await update_node(session, found.id, {"hint": {**found.hint, "bmc": bmc}})

    await caller.change(work)


@router.get("/power")
async def get_power(caller: Reader, node: str) -> PowerOut:
    hammer, reached = await _reached(caller, node)
    try:
        return PowerOut(power=await hammer.status(reached))
    except HammerFailed as error:
        raise BmcFailed(str(error)) from None


@router.post("/power", status_code=204)
async def switch_power(caller: Writer, node: str, body: PowerIn) -> None:
    """Switch a machine on or off, or restart it. What runs on it is not asked."""
    hammer, reached = await _reached(caller, node)
    try:
        if body.action in (PowerAction.OFF, PowerAction.CYCLE):
            await hammer.off(reached)
        if body.action in (PowerAction.ON, PowerAction.CYCLE):
            await hammer.on(reached)
        if body.action is PowerAction.RESET:
            await hammer.reset(reached)
    except HammerFailed as error:
        raise BmcFailed(str(error)) from None


@router.post("/boot_device", status_code=204)
async def choose_boot_device(caller: Writer, node: str, body: BootDeviceIn) -> None:
    """What the machine boots from the next time, and only then."""
    hammer, reached = await _reached(caller, node)
    try:
        await hammer.boot_device(reached, body.device)
    except HammerFailed as error:
        raise BmcFailed(str(error)) from None


async def _reached(caller: Caller, node: str) -> tuple[Hammer, HammerNode]:
    async with caller.server.store.read() as session:
        reached = await hammer_node(session, (await get_node(session, node)).id)
    try:
        return caller.server.installs.reach.hammer(reached), reached
    except HammerFailed as error:
        raise BmcFailed(str(error)) from None
