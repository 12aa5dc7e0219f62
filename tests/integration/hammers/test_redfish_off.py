"""Switching off by Redfish: by what the controller offers, and over only once the machine is off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException

from rackwright.domain.catalogue import JsonObject
from rackwright.hammers import redfish
from rackwright.hammers.base import HammerFailed, HammerNode, Power
from rackwright.hammers.redfish import RedfishHammer
from rackwright.server.listener import listening

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"


@dataclass
class Controller:
    """A machine that takes some looks at it to switch."""

    offers: list[str]
    power: str = "On"
    looks: int = 0
    """How often it still says what was, once it has an order."""
    refuses: bool = False
    """Whether an order is refused, as by one that is off already."""
    ordered: list[str] = field(default_factory=list)
    coming: str = ""

    def look(self) -> str:
        if self.coming:
            if self.looks <= 0:
                self.power, self.coming = self.coming, ""
            self.looks -= 1
        return self.power

    def order(self, kind: str) -> None:
        if kind == "On" and self.power != "Off":
            raise HTTPException(409, "it is not off")
        self.ordered.append(kind)
        self.coming = "On" if kind in ("On", "ForceRestart", "PowerCycle") else "Off"
        if self.refuses:
            self.power, self.coming = "Off", ""
            raise HTTPException(400, "it is off")

    def application(self) -> FastAPI:
        app = FastAPI(openapi_url=None)

        @app.get(ROOT)
        @app.get(f"{ROOT}/")
        async def root() -> dict[str, Any]:
            return {"RedfishVersion": "1.6.0", "Id": "r", "Name": "r", "Systems": {"@odata.id": f"{ROOT}/Systems"}}

        @app.get(f"{ROOT}/Systems")
        async def systems() -> dict[str, Any]:
            return {"Name": "all", "Members@odata.count": 1, "Members": [{"@odata.id": SYSTEM}]}

        @app.get(SYSTEM)
        async def show() -> dict[str, Any]:
            reset = {"target": f"{SYSTEM}/Reset", "ResetType@Redfish.AllowableValues": self.offers}
            actions = {"#ComputerSystem.Reset": reset}
            return {"Id": "1", "Name": "system", "PowerState": self.look(), "Actions": actions}

        @app.post(f"{SYSTEM}/Reset", status_code=204)
        async def reset(body: dict[str, str]) -> None:
            self.order(body["ResetType"])

        return app


@asynccontextmanager
async def reached(controller: Controller) -> AsyncIterator[HammerNode]:
    async with listening(controller.application()) as address:
        bmc: JsonObject = {"address": address.removeprefix("http://"), "username": "a", "password": "b", "plain": True}
        yield HammerNode(1, "n1.example", {"bmc": bmc})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "POLL_SECONDS", 0.01)


async def test_off_is_over_when_the_machine_is_off() -> None:
    controller = Controller(["On", "ForceOff"], looks=3)
    async with reached(controller) as node:
        await RedfishHammer().off(node)
        assert controller.power == "Off"
        await RedfishHammer().on(node)
    assert controller.ordered == ["ForceOff", "On"]


async def test_a_machine_that_stays_on_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "SWITCH_SECONDS", 0.0)
    async with reached(Controller(["On", "ForceOff"], looks=10**6)) as node:
        with pytest.raises(HammerFailed, match=r"n1\.example at .* took the order to switch off, but .* power is On"):
            await RedfishHammer().off(node)


@pytest.mark.parametrize(
    ("offers", "ordered"),
    [
        (["On", "GracefulShutdown", "ForceOff"], "ForceOff"),
        (["On", "GracefulShutdown"], "GracefulShutdown"),
    ],
)
async def test_off_is_by_what_the_controller_offers(offers: list[str], ordered: str) -> None:
    controller = Controller(offers)
    async with reached(controller) as node:
        await RedfishHammer().off(node)
    assert controller.ordered == [ordered]


async def test_a_controller_that_offers_no_way_off_is_told_of() -> None:
    async with reached(Controller(["On"])) as node:
        with pytest.raises(HammerFailed, match="FORCE_OFF"):
            await RedfishHammer().off(node)


async def test_a_machine_that_is_off_needs_no_order() -> None:
    controller = Controller(["On", "ForceOff"], power="Off")
    async with reached(controller) as node:
        await RedfishHammer().off(node)
    assert controller.ordered == []


async def test_a_machine_that_went_off_before_the_order_is_no_error() -> None:
    controller = Controller(["On", "ForceOff"], refuses=True)
    async with reached(controller) as node:
        await RedfishHammer().off(node)
    assert controller.power == "Off"


async def test_who_switches_on_what_goes_off_waits_for_that() -> None:
    controller = Controller(["On", "ForceOff"], power="PoweringOff", looks=3, coming="Off")
    async with reached(controller) as node:
        await RedfishHammer().on(node)
        assert await RedfishHammer().status(node) is Power.ON
    assert controller.ordered == ["On"]


async def test_a_restart_is_by_what_the_controller_offers() -> None:
    controller = Controller(["On", "ForceOff", "PowerCycle"])
    async with reached(controller) as node:
        await RedfishHammer().reset(node)
    assert controller.ordered == ["PowerCycle"]
