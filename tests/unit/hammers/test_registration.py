"""A hammer is one file: found, listed and used from what that file says, and from nothing else."""

import ast
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.support.one_file_kind import told_by_a_process

import rackwright.hammers
from rackwright.hammers.base import Hammer, HammerFailed, HammerNode
from rackwright.hammers.hammer_choice import HammerChoice
from rackwright.hammers.ports import HammerPorts
from rackwright.hammers.registry import bmc_kinds, hammer_kinds, make_hammers, registered_hammers
from rackwright.reach.ssh_connections import Connections, Target
from rackwright.registration import BadRegistration

PACKAGE = "rackwright.hammers"

SMOKE = '''
"""Smoke signals."""

from rackwright.hammers.base import BootDevice, Hammer, HammerNode, Power


class SmokeHammer(Hammer):
    kind = "smoke"
    description = "Smoke signals"
    bmc = True

    async def status(self, node: HammerNode) -> Power:
        return Power.UNKNOWN

    async def on(self, node: HammerNode) -> None: ...

    async def off(self, node: HammerNode) -> None: ...

    async def reset(self, node: HammerNode) -> None: ...

    async def boot_device(self, node: HammerNode, device: BootDevice) -> None: ...
'''

EVERYWHERE = """
import contextlib, io
from rackwright.api.routes.power import BmcIn
from rackwright.barclamps.loader import built_in, known_kinds
from rackwright.cli.main import run
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.hammers.registry import bmc_kinds, registered_hammers

with contextlib.redirect_stdout(io.StringIO()) as help, contextlib.suppress(SystemExit):
    run("node", ["bmc", "--help"])
provisioner = next(barclamp for barclamp in built_in() if barclamp.name == "provisioner")
own = parse_barclamp("name: x\\nhammers: [{name: far, kind: smoke}]\\n", "f", known_kinds())
print(json.dumps({
    "registry": bmc_kinds(),
    "loaded": next(one.load().__name__ for one in registered_hammers() if one.kind == "smoke"),
    "api": BmcIn.model_json_schema()["properties"]["kind"],
    "taken": BmcIn(kind="smoke", address="hill").kind,
    "command": "<redfish|ipmi|qemu|smoke>" in help.getvalue(),
    "attrib": next(one.schema for one in provisioner.attribs if one.name == "bmc-kind"),
    "listed": [(one.name, one.priority, one.description) for one in provisioner.hammers][-1],
    "barclamp": own.hammers[0].kind,
}))
"""

LIGHT = """
import rackwright.cli.commands.node
from rackwright.hammers.registry import hammer_kinds
hammer_kinds()
print(json.dumps(sorted({"sushy", "asyncssh", "httpx"} & {name.partition(".")[0] for name in sys.modules})))
"""


def test_a_new_hammer_is_one_file_that_registry_api_command_and_barclamps_know(tmp_path: Path) -> None:
    (tmp_path / "smoke.py").write_text(SMOKE)
    kinds = ["redfish", "ipmi", "qemu", "smoke"]
    assert told_by_a_process(PACKAGE, tmp_path, EVERYWHERE) == {
        "registry": kinds,
        "loaded": "SmokeHammer",
        "api": {"default": "redfish", "enum": kinds, "title": "Kind", "type": "string"},
        "taken": "smoke",
        "command": True,
        "attrib": {"enum": kinds},
        "listed": ["smoke", 100, "Smoke signals"],
        "barclamp": "smoke",
    }


def test_the_command_line_lists_kinds_without_loading_what_hammers_use(tmp_path: Path) -> None:
    assert told_by_a_process(PACKAGE, tmp_path, LIGHT) == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rackwright.hammers, "__path__", [*rackwright.hammers.__path__, str(tmp_path)])
    return tmp_path


def test_two_files_with_one_kind_are_an_error_that_names_both(folder: Path) -> None:
    (folder / "smoke.py").write_text(SMOKE.replace('"smoke"', '"ipmi"'))
    with pytest.raises(
        BadRegistration, match=r"ipmi\.IpmiHammer and .*smoke\.SmokeHammer both declare the kind 'ipmi'"
    ):
        bmc_kinds()


def test_a_kind_that_is_worked_out_is_an_error(folder: Path) -> None:
    (folder / "smoke.py").write_text(SMOKE.replace('"smoke"', '"smo" + other'))
    with pytest.raises(BadRegistration, match=r"smoke\.SmokeHammer: its kind must be written as a text"):
        bmc_kinds()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Odd:\n    kind = 'odd'\n", "declares the kind 'odd', but is no Hammer"),
        (
            "from rackwright.hammers.ipmi import IpmiHammer\n\nclass Odd(IpmiHammer):\n    kind = 'odd'\n",
            "must assign .* itself",
        ),
    ],
)
def test_a_class_that_is_not_what_was_read_of_it_is_an_error(folder: Path, text: str, reason: str) -> None:
    (folder / f"odd_{len(text)}.py").write_text(text)
    [odd] = [registration for registration in registered_hammers() if registration.kind == "odd"]
    with pytest.raises(BadRegistration, match=reason):
        odd.load()


class ParsesWhenCollected:
    """Garbage that parses when it is found, as a traceback does that is printed for a finalizer."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("x = 1")


def test_kinds_are_found_also_while_garbage_is_collected_that_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, usual = list(rackwright.hammers.__path__), gc.get_threshold()
    try:
        for number in range(20):
            # Another folder, so that the files are read again.
            monkeypatch.setattr(rackwright.hammers, "__path__", [*before, str(tmp_path / str(number))])
            ParsesWhenCollected()
            gc.set_threshold(400 + 40 * number)
            assert bmc_kinds() == ("redfish", "ipmi", "qemu")
    finally:
        gc.set_threshold(*usual)


def ports(client: httpx.AsyncClient, *, lab: bool = False, sockets: Path | None = None) -> HammerPorts:
    # Nothing is reached here, so there is no way to anything.
    connections, targets = cast(Connections, None), cast(Callable[[int], Awaitable[Target]], None)
    return HammerPorts(connections, targets, client, lab, sockets)


async def kinds_of(*, lab: bool = False, sockets: Path | None = None) -> list[str]:
    async with httpx.AsyncClient() as client:
        return [hammer.kind for hammer in make_hammers(ports(client, lab=lab, sockets=sockets))]


async def test_a_server_has_what_only_a_lab_has_in_a_lab_only(tmp_path: Path) -> None:
    assert await kinds_of() == ["redfish", "ipmi", "ssh"]
    assert await kinds_of(lab=True) == ["redfish", "ipmi", "ssh", "simulated"]
    assert await kinds_of(sockets=tmp_path) == ["redfish", "ipmi", "ssh", "qemu"]
    assert "simulated" not in [kind.name for kind in hammer_kinds()]


async def test_of_several_that_reach_a_machine_the_lowest_priority_is_preferred() -> None:
    login = {"bmc": {"address": "192.0.2.7", "username": "admin"}}
    async with httpx.AsyncClient() as client:
        choice = HammerChoice(make_hammers(ports(client, lab=True)))

    def chosen(**values: object) -> Hammer:
        return choice.hammer(HammerNode(1, "n1.rack.example", **values))  # type: ignore[arg-type]

    assert chosen(settings={}).kind == "ssh"
    assert chosen(settings={"bmc": {"address": "192.0.2.7"}}).kind == "ssh"
    assert chosen(settings=login).kind == "redfish"
    assert chosen(settings=login, priorities={"ipmi": 5}).kind == "ipmi"
    assert chosen(settings=login, priorities={"ssh": 5}).kind == "ssh"
    settings = {"bmc": {**login["bmc"], "kind": "redfish"}}
    assert chosen(settings=settings, priorities={"ipmi": 5}).kind == "redfish"
    simulated = {"kind": "simulated", "address": "http://127.0.0.1:1"}
    assert chosen(settings={}, reported_bmc=simulated, priorities={"ssh": -5}).kind == "simulated"
    with pytest.raises(HammerFailed, match=r"this server knows redfish, ipmi$"):
        chosen(settings={"bmc": {"kind": "qemu"}})
