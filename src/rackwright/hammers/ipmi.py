"""The hammer for machines whose controller speaks IPMI 2.0 over the network, through ipmitool.

Each request is one child process and one session, and each BMC gets one request at a time. The address and login of a
BMC come with the node.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from rackwright.child_process import kill_group
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.power import has_bmc_login
from rackwright.hammers.base import BootDevice, ControllerUnreachable, Hammer, HammerFailed, HammerNode, Power

log = logging.getLogger(__name__)

PROGRAM = "ipmitool"
DEADLINE = 60.0
SWITCH_SECONDS = 30.0
"""Seconds a BMC may take to switch after it confirmed the order. Many confirm first, and switch then."""
POLL_SECONDS = 1.0
PAUSE, TRIES = 2, 3
"""Seconds and tries of ipmitool for each message that is not answered. A BMC that is away for longer is tried again by
the caller."""

PORT = 623
STRONG = 17
"""The cipher suite RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128. It is always named: left to choose, ipmitool takes
what is offered, and an attacker in between could make the offer."""
SUITES = (STRONG, 3)

POWERS = {"Chassis Power is on": Power.ON, "Chassis Power is off": Power.OFF}
DEVICES = {BootDevice.NETWORK: "pxe", BootDevice.DISK: "disk"}
KEEP_BOOT_DEVICE = ("raw", "0x00", "0x08", "0x03", "0x08")
"""Set System Boot Options, parameter 3, bit 3: keep the boot device for more than 60 s. ipmitool has no command for
it."""

# Messages of ipmitool, by what they mean.
WRONG_LOGIN = ("RAKP 2 HMAC is invalid", "unauthorized name", "invalid integrity check value")
WRONG_LEVEL = (
    "invalid role",
    "unauthorized role requested",
    "insufficient resources for role",
    "Set Session Privilege Level to OPERATOR failed:",
)
WRONG_SUITE = (
    "invalid authentication algorithm",
    "invalid integrity algorithm",
    "invalid confidentiality algorithm",
    "no matching authentication algorithm",
    "no matching integrity payload",
    "no matching cipher suite",
    # Some BMCs do not even refuse: ipmitool then goes on as if there were a session, and gets no answer to that either.
    "Timeout in open session response",
    "Set Session Privilege Level to OPERATOR failed\n",
)
NO_SESSION = "Unable to establish"
"""Part of ipmitool's message that there is no session: the BMC never had the order."""
NOT_ANSWERED = "Unable to set Chassis Power Control"
SILENT = "Get Auth Capabilities error\n"
REFUSED = "rsp=0x"
"""Part of ipmitool's message about a raw command that the BMC answered, but did not carry out."""
NO_REASONS = (
    "Loading IANA PEN Registry",
    "Get HPM.x Capabilities",
    "Running Get ",
    "Invalid completion code received",
    "Discovered ",
    "Retry ",
    "Error: Unable to establish IPMI v2 / RMCP+ session",
)
"""Beginnings of lines that ipmitool prints also when all is well, or after every reason."""


class _NotAnswered(HammerFailed):
    """The BMC had the order, maybe, and did not answer it: whether it carried it out must be looked at."""


class IpmiHammer(Hammer):
    """The hammer for IPMI.

    It takes from `settings["bmc"]`: address, username, password; `cipher_suite` 3 for a BMC that cannot do better, on a
    network of its own only.
    """

    kind = "ipmi"
    description = "Power and boot device through a BMC that speaks IPMI 2.0 only"
    priority = 20
    bmc = True

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def reaches(self, node: HammerNode) -> bool:
        return has_bmc_login(node.settings.get("bmc"))

    async def status(self, node: HammerNode) -> Power:
        async with self._session(node) as bmc:
            return await bmc.power()

    async def on(self, node: HammerNode) -> None:
        async with self._session(node) as bmc:
            await bmc.switch(Power.ON)

    async def off(self, node: HammerNode) -> None:
        async with self._session(node) as bmc:
            await bmc.switch(Power.OFF)

    async def shut_down(self, node: HammerNode) -> bool:
        async with self._session(node) as bmc:
            if await bmc.power() is not Power.OFF:
                await bmc.order("soft")
            return True

    async def reset(self, node: HammerNode) -> None:
        """Restart the machine; one that is off is switched on."""
        async with self._session(node) as bmc:
            if await bmc.power() is Power.ON:
                await bmc.order("reset")
            else:
                await bmc.switch(Power.ON)

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None:
        # Without the option, a BMC may have a machine that boots by UEFI look for a BIOS boot this once.
        options = ["options=efiboot"] if _is_uefi(node.settings) else []
        async with self._session(node) as bmc:
            await bmc.keep_boot_device()
            await bmc.ask("chassis", "bootdev", DEVICES[device], *options)

    @contextlib.asynccontextmanager
    async def _session(self, node: HammerNode) -> AsyncIterator["_Bmc"]:
        """Wait for the turn at a BMC, and give the whole call its deadline.

        A BMC has room for few sessions; and reading the power and switching it must not mix with another call's.
        """
        bmc = _bmc_of(node, self._program)
        turn = self._turns.setdefault(bmc.address, asyncio.Lock())
        try:
            async with asyncio.timeout(DEADLINE), turn:
                yield bmc
        except TimeoutError:
            raise HammerFailed(f"the BMC of {node.name} did not answer within {DEADLINE:g} s") from None


@dataclass
class _Bmc:
    """One BMC, and the requests to it in one call."""

    node: str
    address: str
    host: str
    port: int
    username: str
    password: str = field(repr=False)
    suite: int
    program: str
    has_answered: bool = False
    """Whether the BMC answered anything in this call. From then on this server reaches it, however silent it is."""
    given_order: str = ""
    """The order that the BMC was given, whether it confirmed it or not; empty: none."""

    async def power(self) -> Power:
        return POWERS.get((await self.ask("chassis", "power", "status")).strip(), Power.UNKNOWN)

    async def switch(self, target: Power) -> None:
        """Switch the power, and wait until it is switched: who switches off and then on would else find it still on."""
        if await self.power() is target:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + SWITCH_SECONDS
        await self._order_until_heard(target)
        while (power := await self.power()) is not target:
            if loop.time() >= end:
                raise HammerFailed(
                    f"{self._name} took the order to switch {target}, but after {SWITCH_SECONDS:g} s its power is "
                    f"{power}"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _order_until_heard(self, target: Power) -> None:
        """Give an order until it is answered, or the power says that it was heard."""
        for remaining in reversed(range(TRIES)):
            try:
                return await self.order(target.value)
            except _NotAnswered:
                if await self.power() is target:
                    return None
                if not remaining:
                    raise

    async def order(self, order: str) -> None:
        """Give an order that changes the power, once.

        ipmitool sends again what is not answered, and a BMC that heard both restarts the machine twice: the second time
        in the middle of what the first one began. So only the session is tried again.
        """
        for remaining in reversed(range(TRIES)):
            status, _, errors = await self._run(("chassis", "power", order), once=True)
            if status == 0 or NOT_ANSWERED in errors:
                self.given_order = order
            if status == 0:
                return
            if NOT_ANSWERED in errors:
                raise _NotAnswered(
                    f"{self._name} did not answer the order to {order}, which it may have carried out. It is not given "
                    "again: look at the machine first"
                )
            if (
                not remaining
                or NO_SESSION not in errors
                or any(word in errors for word in (*WRONG_LOGIN, *WRONG_LEVEL))
            ):
                raise self._failure(errors)

    async def keep_boot_device(self) -> None:
        """Have the BMC keep the boot device; one that cannot must get the order to start within 60 s."""
        status, _, errors = await self._run(KEEP_BOOT_DEVICE)
        if status != 0 and REFUSED not in errors:
            raise self._failure(errors)
        if status != 0:
            log.info("%s keeps a boot device for 60 s only", self._name)

    async def ask(self, *words: str) -> str:
        """Run a command of ipmitool and return its output; raise HammerFailed with the reason if it fails."""
        status, output, errors = await self._run(words)
        if status != 0:
            raise self._failure(errors)
        return output

    @property
    def _name(self) -> str:
        return f"the BMC of {self.node} at {self.address}"

    def _command(self, words: Iterable[str], once: bool) -> list[str]:
        pause, tries = (PAUSE * TRIES, 1) if once else (PAUSE, TRIES)
        return [
            *(self.program, "-I", "lanplus", "-C", str(self.suite), "-H", self.host, "-p", str(self.port)),
            # Operator is all that power takes. -E: the password is in the environment, where only its owner reads it.
            *("-U", self.username, "-L", "OPERATOR", "-E", "-N", str(pause), "-R", str(tries)),
            # Given once, -v has ipmitool say why there is no session; given twice, it would show keys.
            *("-v", *words),
        ]

    async def _run(self, words: Iterable[str], *, once: bool = False) -> tuple[int, str, str]:
        """Run ipmitool; return its exit status, standard output and standard error. `once`: nothing is sent again."""
        path = os.environ.get("PATH", os.defpath)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(words, once),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={"PATH": path, "LC_ALL": "C", "IPMITOOL_PASSWORD": self.password},
                start_new_session=True,
            )
        except FileNotFoundError:
            raise HammerFailed(
                f"{self._name} speaks IPMI, and there is no {self.program} on this server. "
                "Install it: apt-get install ipmitool"
            ) from None
        except OSError as error:
            raise HammerFailed(f"{self._name}: cannot run {self.program}: {error.strerror}") from None
        try:
            output, errors = await process.communicate()
        finally:
            status = await kill_group(process)
        self.has_answered = self.has_answered or status == 0
        return status, output.decode(errors="replace"), errors.decode(errors="replace")

    def _failure(self, errors: str) -> HammerFailed:
        """Return the failure that ipmitool printed.

        Another server does all of it again if nothing was done; so that is said only where the BMC answered nothing.
        """
        if SILENT not in errors:
            return HammerFailed(self._explain(errors))
        if self.given_order:
            return HammerFailed(
                f"{self._name} was ordered to {self.given_order}, and does not answer since: whether it carried "
                "that out is not known. Look at the machine first"
            )
        return (HammerFailed if self.has_answered else ControllerUnreachable)(self._explain(errors))

    def _explain(self, errors: str) -> str:
        """Return the reason of a failure, in words a person can act on, from what ipmitool printed."""

        def has(*reasons: str) -> bool:
            return any(reason in errors for reason in reasons)

        if has(*WRONG_LOGIN):
            return f"{self._name} refuses the user name or the password"
        if has(*WRONG_SUITE):
            return f"{self._name} opens no session with cipher suite {self.suite}. {self._other_suite()}"
        if has(*WRONG_LEVEL):
            return f"{self._name} does not let {self.username!r} switch power. Give that user the level Operator there"
        if has(SILENT):
            return f"{self._name} does not answer. Is IPMI over LAN enabled there, and UDP port {self.port} open?"
        reasons = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith(NO_REASONS)]
        return f"{self._name}: {'; '.join(reasons[-2:]) or 'no session, and no reason said'}"

    def _other_suite(self) -> str:
        """Return the advice for a BMC that opens no session with the cipher suite in use."""
        if self.suite != STRONG:
            return f"Go back to the strong one: rackwright node bmc {self.node} --kind ipmi"
        return (
            "Update its firmware; or, where nobody else is on its network, allow the weak one: "
            f"rackwright node bmc {self.node} --kind ipmi --cipher-suite 3"
        )


def _bmc_of(node: HammerNode, program: str) -> _Bmc:
    bmc = node.settings.get("bmc")
    address = bmc.get("address") if isinstance(bmc, dict) else None
    if not isinstance(bmc, dict) or not isinstance(address, str):
        raise HammerFailed(f"{node.name} has no BMC address. Give it one: rackwright node bmc {node.name} --kind ipmi")
    host, port = _host_and_port(node, address)
    suite = bmc.get("cipher_suite", STRONG)
    if suite not in SUITES or isinstance(suite, bool):
        raise HammerFailed(f"the BMC of {node.name} cannot be spoken to with cipher suite {suite!r}: it is 17 or 3")
    username, password = str(bmc.get("username", "")), str(bmc.get("password", ""))
    if "\0" in username + password:
        raise HammerFailed(f"the user name or the password of the BMC of {node.name} has a NUL in it")
    return _Bmc(node.name, address, host, port, username, password, int(suite), program)


def _host_and_port(node: HammerNode, address: str) -> tuple[str, int]:
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(address)), PORT  # IPv6 as discovery writes it
    try:
        split = urlsplit(f"//{address}")
        host, port = split.hostname, split.port
    except ValueError:
        host, port = None, None
    if not host:
        raise HammerFailed(
            f"the BMC address {address!r} of {node.name} is neither a host nor host:port. "
            "An IPv6 address with a port is written [address]:port"
        )
    return host, PORT if port is None else port


def _is_uefi(settings: JsonObject) -> bool:
    """Return whether the machine boots by UEFI, as discovery found out."""
    firmware = settings.get("firmware")
    return isinstance(firmware, dict) and firmware.get("mode") == "uefi"
