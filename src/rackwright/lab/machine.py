"""A simulated machine: it boots, registers, sends heartbeats, installs, executes runs of jigs, reboots and fails.

All it knows of the server is the machine interface. Its delays and failures come from a seed, so that a test can be
repeated. It records what it executes, so that it notices two runs at the same time.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rackwright.api.routes.machines.machines import SIGNATURE, registration_message
from rackwright.domain.machines.install import SLEDGEHAMMER
from rackwright.lab.lldp import in_base64, switch_frame

log = logging.getLogger(__name__)

T = TypeVar("T")

SECRET_PATIENCE = 120.0
DISK_BYTES = 512 * 10**9
INSTALL_STAGES = ("partition", "download", "unpack", "bootloader")


class PowerState(StrEnum):
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class Behaviour:
    """How fast machines are, and how often they fail. Seconds are the mean of random delays drawn from the seed."""

    boot: float = 0.2
    install: float = 0.5
    heartbeat: float | None = None
    """None: as often as the server says"""
    install_failure: float = 0.0
    """Share of installs that report a failure"""
    silent_install: float = 0.0
    """Share of installs that never report"""
    retry: float = 0.2
    """Seconds between attempts while the server does not answer"""


@dataclass
class Execution:
    """A run of a jig that the machine has executed, as the machine itself recorded it."""

    token: int
    role: str
    began: float
    ended: float | None = None


@dataclass(frozen=True)
class LostSecret:
    """A request for the one-time secret of an install to which no answer arrived."""

    server: str
    why: str
    at: float
    """When the machine noticed, by `time.monotonic`"""


@dataclass
class Journal:
    """What the machine has recorded about itself."""

    executions: list[Execution] = field(default_factory=list)
    overlaps: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of tokens of runs that were executed at the same time: must stay empty"""
    superseded: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of run tokens: the machine ended the first because the second came. Allowed for a dead server's run only"""
    installs: int = 0
    boots: list[str] = field(default_factory=list)
    lost_secrets: list[LostSecret] = field(default_factory=list)


class Machine:
    """A simulated machine. Its BMC calls `power_on`, `power_off` and `reset`; a jig calls `execute`."""

    def __init__(
        self,
        number: int,
        next_server: Callable[[], str],
        client: httpx.AsyncClient,
        behaviour: Behaviour,
        seed: int,
        bmc: str,
    ) -> None:
        self.number = number
        self.rng = random.Random(f"{seed}/{number}")  # noqa: S311  # repeatable, not secret
        self.mac = f"52:54:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
        self.uuid = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        self.behaviour = behaviour
        self.bmc = bmc
        self.journal = Journal()
        self.power = PowerState.OFF
        self.boot_id = ""
        self.bootenv = ""
        self.disk: str | None = None
        self.contents: list[dict[str, object]] = []
        """What is on its disk, as a machine reports it."""
        self._next_server = next_server
        self._client = client
        self._key = Ed25519PrivateKey.from_private_bytes(self.rng.randbytes(32))
        self._token: str | None = None
        self._heartbeat_seconds = 10.0
        self._life_task: asyncio.Task[None] | None = None
        self._running: dict[int, asyncio.Task[None]] = {}
        self._last_token = 0

    # --- for the BMC

    def power_on(self) -> None:
        if self.power is PowerState.OFF:
            self.power = PowerState.ON
            self._life_task = asyncio.create_task(self._run(), name=f"machine {self.number}")

    async def power_off(self) -> None:
        self.power = PowerState.OFF
        tasks = [task for task in (self._life_task, *self._running.values()) if task is not None]
        self._life_task = None
        self.boot_id = ""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def reset(self) -> None:
        await self.power_off()
        self.power_on()

    # --- what the machine does while it is on

    async def _run(self) -> None:
        while True:
            await self._pause(self.behaviour.boot)
            bootenv = await self._until_answered(self._ask_bootenv)
            self.boot_id = f"{self.rng.getrandbits(128):032x}"
            self.bootenv = bootenv
            self.journal.boots.append(bootenv)
            if bootenv.endswith("-install"):
                await self._install(bootenv.removesuffix("-install"))
            elif bootenv == "local" and self.disk is None:
                await asyncio.Event().wait()  # nothing to boot from: the machine hangs until it is reset
            else:
                await self._serve()

    async def _ask_bootenv(self) -> str:
        response = await self._request("GET", f"/boot/{self.mac}")
        line = next(line for line in response.text.splitlines() if line.startswith("# bootenv "))
        return line.removeprefix("# bootenv ")

    async def _serve(self) -> None:
        """Act as sledgehammer or as the installed system: register, and send heartbeats until the machine is reset.

        Sledgehammer registers at each boot: it looks at the hardware anew.
        """
        if self._token is None or self.bootenv == SLEDGEHAMMER:
            await self._until_answered(self._register)
        while True:
            try:
                await self._heartbeat()
            except httpx.HTTPStatusError as error:
                if error.response.status_code == 401:
                    self._token = None
                    await self._until_answered(self._register)
                elif not _is_temporary(error):
                    raise
            except httpx.TransportError:
                log.debug("machine %s: no server", self.number)
            await self._pause(self.behaviour.heartbeat or self._heartbeat_seconds)

    async def _register(self) -> None:
        challenge = (await self._request("GET", "/api/v2/machine/challenge")).json()["challenge"]
        body = json.dumps(
            {
                "challenge": challenge,
                "key": base64.b64encode(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode(),
                "macs": [self.mac],
                "uuid": self.uuid,
                "boot_id": self.boot_id,
                "bootenv": self.bootenv,
                "inventory": self.inventory(),
            }
        ).encode()
        signature = base64.b64encode(self._key.sign(registration_message(body))).decode()
        headers = {SIGNATURE: signature, "Content-Type": "application/json"}
        response = await self._client.post(
            self._next_server() + "/api/v2/nodes/register", content=body, headers=headers
        )
        response.raise_for_status()
        self._token = response.json()["token"]
        self._heartbeat_seconds = response.json()["heartbeat"]

    def disks(self) -> list[dict[str, object]]:
        """Return the disk of the machine as discovery and the installer report it, with what is on it now."""
        name = f"disk-{self.uuid[:8]}"
        fingerprint = hashlib.sha256(json.dumps([name, self.contents]).encode()).hexdigest()
        disk = {"name": name, "device": "vda", "bytes": DISK_BYTES, "serial": self.uuid[:8], "bus": "virtio"}
        return [{**disk, "rotational": False, "contents": self.contents, "fingerprint": fingerprint}]

    def inventory(self) -> dict[str, object]:
        return {
            "cpu": {"cores": 8, "architecture": "x86_64"},
            "memory": 32 * 1024**3,
            "disks": self.disks(),
            "links": [{"name": "eth0", "mac": self.mac, "up": True}],
            "lldp": {"eth0": in_base64(switch_frame(self.number))},
            "serial": f"SIM{self.number:06d}",
            "bmc": {"kind": "simulated", "address": f"{self.bmc}/machines/{self.number}"},
        }

    async def _heartbeat(self) -> None:
        body: dict[str, object] = {"boot_id": self.boot_id, "bootenv": self.bootenv}
        await self._request("POST", "/api/v2/machine/heartbeat", body, token=self._token)

    async def _install(self, target_os: str) -> None:
        """Act as an installer. If the server refuses, the install ends and the machine waits to be reset."""
        server = self._next_server()
        try:
            # The secret is given out only once, so the installer waits long rather than ask again.
            response = await self._client.get(f"{server}/boot/{self.mac}/secret", timeout=SECRET_PATIENCE)
            response.raise_for_status()
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == httpx.codes.CONFLICT:
                return await self._pause(self.behaviour.retry)  # the machine has to boot again
            if isinstance(error, httpx.HTTPStatusError) and not _is_temporary(error):
                await asyncio.Event().wait()
            self.journal.lost_secrets.append(LostSecret(server, f"{type(error).__name__}: {error}", time.monotonic()))
            return  # a file of the boot did not arrive: as any firmware does, the machine boots again
        secret = response.text
        try:
            config = await self._until_answered(lambda: self._request("GET", "/api/v2/install/config", token=secret))
        except httpx.HTTPStatusError:
            await asyncio.Event().wait()
        differs = self._find_difference(config.json())
        if differs:
            result = {"ok": False, "error": f"nothing was written: {differs}"}
            return await self._report_install("/api/v2/install/result", result, secret)
        self.disk = None
        self.contents = []
        for number, stage in enumerate(INSTALL_STAGES):
            await self._pause(self.behaviour.install / len(INSTALL_STAGES))
            percent = round(100 * (number + 1) / len(INSTALL_STAGES))
            await self._report_install("/api/v2/install/progress", {"stage": stage, "percent": percent}, secret)
        if self.rng.random() < self.behaviour.silent_install:
            await asyncio.Event().wait()
        ok = self.rng.random() >= self.behaviour.install_failure
        if ok:
            self.disk = target_os
            self.contents = self._installed_contents()
            self.journal.installs += 1
        result = {"ok": ok, "error": "" if ok else "disk is on fire", "disks": self.disks()}
        await self._report_install("/api/v2/install/result", result, secret)

    def _find_difference(self, config: dict[str, Any]) -> str:
        """Return how the disk differs from what was confirmed; an empty text if it does not, or nothing is on it."""
        [disk] = self.disks()
        planned = {wiped["name"]: wiped["fingerprint"] for wiped in config.get("wipes", ())}
        if not disk["contents"] or planned.get(disk["name"]) == disk["fingerprint"]:
            return ""
        return f"planned were {', '.join(planned) or 'no disks'}, and here is {disk['name']} with other data"

    def _installed_contents(self) -> list[dict[str, object]]:
        """Return what an install puts on the disk: each makes a new file system."""
        identity = str(uuid.uuid5(uuid.UUID(self.uuid), str(self.journal.installs)))
        root = {"device": "vda1", "type": "ext4", "label": "root", "uuid": identity, "bytes": DISK_BYTES}
        return [{"device": "vda", "type": "dos"}, root]

    async def _report_install(self, path: str, body: dict[str, object], secret: str) -> None:
        async def send() -> None:
            await self._request("POST", path, body, token=secret)

        try:
            await self._until_answered(send)
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in (404, 409):
                raise

    # --- for jigs

    async def execute(self, token: int, role: str, seconds: float) -> None:
        """Execute a run. A newer token first ends an older run; a token older than the last is refused."""
        if token <= self._last_token:
            raise ValueError(f"token {token} is not newer than {self._last_token}")
        if self.power is PowerState.OFF or not self.boot_id:
            raise ConnectionError("the machine is off")
        self._last_token = token
        for older, task in list(self._running.items()):
            self.journal.superseded.append((older, token))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if token != self._last_token:
            raise ValueError(f"token {token} is not newer than {self._last_token}")
        task = asyncio.create_task(self._execute(token, role, seconds))
        self._running[token] = task
        await task

    async def _execute(self, token: int, role: str, seconds: float) -> None:
        execution = Execution(token, role, asyncio.get_running_loop().time())
        self.journal.overlaps.extend((other.token, token) for other in self.journal.executions if other.ended is None)
        self.journal.executions.append(execution)
        try:
            await self._pause(seconds)
        finally:
            execution.ended = asyncio.get_running_loop().time()
            self._running.pop(token, None)

    # --- helpers

    async def _pause(self, mean: float) -> None:
        await asyncio.sleep(mean * self.rng.uniform(0.5, 1.5))

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request until some server answers. A refusal is an answer, a request to wait is not."""
        while True:
            try:
                return await ask()
            except httpx.TransportError:
                log.debug("machine %s: no server", self.number)
            except httpx.HTTPStatusError as error:
                if not _is_temporary(error):
                    raise
            await self._pause(self.behaviour.retry)

    async def _request(
        self, method: str, path: str, body: dict[str, object] | None = None, token: str | None = None
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = await self._client.request(method, self._next_server() + path, json=body, headers=headers)
        response.raise_for_status()
        return response


def _is_temporary(error: httpx.HTTPStatusError) -> bool:
    """Return whether to try again: the server says to wait, or is broken. A refusal is final."""
    return error.response.status_code == 429 or error.response.status_code >= 500
