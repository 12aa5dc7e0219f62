"""The Redfish BMC of a virtual machine: as much of DSP0266 as a client needs to switch its power and to boot it."""

import base64
import binascii
import secrets
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from rackwright.hammers.qemu import DISK, NETWORK_CARD
from rackwright.lab.virtual import VirtualMachine

ROOT = "/redfish/v1"
RESETS = ["On", "ForceOff", "GracefulShutdown", "ForceRestart", "GracefulRestart", "ForceOn", "PowerCycle"]
SOURCES = {"Pxe": NETWORK_CARD, "Hdd": DISK}


@dataclass(frozen=True)
class Login:
    """The user name and password of the BMC."""

    username: str
    password: str


class ResetIn(BaseModel):
    reset_type: str = Field(alias="ResetType")


class BootIn(BaseModel):
    target: str | None = Field(None, alias="BootSourceOverrideTarget")
    enabled: str | None = Field(None, alias="BootSourceOverrideEnabled")


class SystemIn(BaseModel):
    boot: BootIn = Field(alias="Boot")


def create_bmc(machine: VirtualMachine, login: Login) -> FastAPI:
    """Return the web application of a machine's BMC."""

    async def check_login(request: Request) -> None:
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        try:
            decoded = base64.b64decode(credentials, validate=True)
        except binascii.Error:
            decoded = b""
        expected = f"{login.username}:{login.password}".encode()
        if kind.lower() != "basic" or not secrets.compare_digest(decoded, expected):
            raise HTTPException(401, headers={"WWW-Authenticate": "Basic"})

    app = FastAPI(openapi_url=None)
    private = [Depends(check_login)]
    name = machine.hardware.name
    system = f"{ROOT}/Systems/{name}"

    @app.get(ROOT)
    @app.get(f"{ROOT}/")
    async def root() -> dict[str, Any]:
        return {
            **_resource("ServiceRoot", ROOT, "RootService"),
            "RedfishVersion": "1.15.0",
            "UUID": machine.hardware.uuid,
            "Systems": {"@odata.id": f"{ROOT}/Systems"},
        }

    @app.get(f"{ROOT}/Systems", dependencies=private)
    async def systems() -> dict[str, Any]:
        return {
            **_resource("ComputerSystemCollection", f"{ROOT}/Systems", "Systems"),
            "Members@odata.count": 1,
            "Members": [{"@odata.id": system}],
        }

    @app.get(system, dependencies=private)
    async def show() -> dict[str, Any]:
        sources = {device: source for source, device in SOURCES.items()}
        return {
            **_resource("ComputerSystem", system, name),
            "SystemType": "Virtual",
            "Manufacturer": "Rackwright",
            "UUID": machine.hardware.uuid,
            "PowerState": "On" if machine.is_on else "Off",
            "Boot": {
                "BootSourceOverrideEnabled": "Once" if machine.boot_once else "Disabled",
                "BootSourceOverrideTarget": sources[machine.boot_once] if machine.boot_once else "None",
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", *SOURCES],
                "BootSourceOverrideMode": "UEFI" if machine.hardware.firmware.is_uefi else "Legacy",
            },
            "Actions": {
                "#ComputerSystem.Reset": {
                    "target": f"{system}/Actions/ComputerSystem.Reset",
                    "ResetType@Redfish.AllowableValues": RESETS,
                }
            },
        }

    @app.patch(system, dependencies=private, status_code=204)
    async def change(body: SystemIn) -> None:
        boot = body.boot
        if boot.enabled == "Disabled" or boot.target == "None":
            machine.boot_once = None
        elif boot.target in SOURCES:
            if boot.enabled == "Continuous":
                machine.boot_first = SOURCES[boot.target]
            else:
                machine.boot_once = SOURCES[boot.target]
        elif boot.target is not None:
            raise HTTPException(400, f"this machine cannot boot from {boot.target}")

    @app.post(f"{system}/Actions/ComputerSystem.Reset", dependencies=private, status_code=204)
    async def reset(body: Annotated[ResetIn, ...]) -> None:
        if body.reset_type not in RESETS:
            raise HTTPException(400, f"no ResetType {body.reset_type}")
        if body.reset_type in ("On", "ForceOn"):
            await machine.on()
        elif body.reset_type in ("ForceOff", "GracefulShutdown"):
            await machine.off()
        else:
            await machine.reset()

    return app


def _resource(kind: str, path: str, name: str) -> dict[str, Any]:
    """Return the fields that every Redfish resource has."""
    return {"@odata.type": f"#{kind}.{kind}", "@odata.id": path, "Id": name, "Name": name}
