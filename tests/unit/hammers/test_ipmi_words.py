"""The errors of the IPMI hammer from messages of ipmitool that the BMCs of the tests cannot be made to cause."""

from pathlib import Path

import pytest

from rackwright.domain.catalogue import JsonObject
from rackwright.hammers.base import BootDevice, HammerFailed, HammerNode, Power
from rackwright.hammers.ipmi import IpmiHammer

NO_SESSION = "Error: Unable to establish IPMI v2 / RMCP+ session"
NOISE = "Loading IANA PEN Registry...\nInvalid completion code received: Insufficient privilege level"


def _node() -> HammerNode:
    bmc: JsonObject = {"address": "192.0.2.7", "username": "ops", "password": "secret"}
    return HammerNode(1, "n1.example", {"bmc": bmc})


def _ipmitool(folder: Path, script: str) -> IpmiHammer:
    path = folder / "ipmitool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return IpmiHammer(str(path))


def _failing(folder: Path, errors: str) -> IpmiHammer:
    (folder / "errors").write_text(errors)
    return _ipmitool(folder, f"cat {folder}/errors >&2; exit 1")


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ("RAKP 4 message indicates an error : invalid integrity check value", "refuses the user name or the password"),
        ("RAKP 2 message indicates an error : invalid role", "level Operator"),
        ("Set Session Privilege Level to OPERATOR failed: Unknown (0x81)", "does not let 'ops' switch power"),
        ("Error in open session response message : invalid integrity algorithm", "--kind ipmi --cipher-suite 3"),
        (
            "Get Auth Capabilities error\nError issuing it",
            "does not answer. Is IPMI over LAN enabled",
        ),
        ("Set Session Privilege Level to OPERATOR failed", "opens no session with cipher suite 17"),
        ("Get Auth Capabilities error: Node busy", "n1.example at 192.0.2.7: Get Auth Capabilities error: Node busy"),
        (
            "Address lookup for b1 failed\nCould not open socket!",
            "Address lookup for b1 failed; Could not open",
        ),
        ("", "no session, and no reason said"),
    ],
)
async def test_why_there_is_no_session_is_told(tmp_path: Path, errors: str, reason: str) -> None:
    with pytest.raises(HammerFailed) as failure:
        await _failing(tmp_path, f"{errors}\n{NO_SESSION}\n" if errors else f"{NO_SESSION}\n").on(_node())
    assert reason in str(failure.value)
    assert "secret" not in str(failure.value)


async def test_a_refused_order_is_told_in_the_words_of_the_bmc(tmp_path: Path) -> None:
    refused = "Set Chassis Power Control to Reset failed: Command not supported in present state"
    with pytest.raises(HammerFailed, match=f"at 192.0.2.7: {refused}$"):
        await _failing(tmp_path, f"{NOISE}\n{refused}\n").on(_node())


async def test_an_answer_that_says_neither_on_nor_off_is_unknown(tmp_path: Path) -> None:
    assert await _ipmitool(tmp_path, "echo Chassis Power is sleepy").status(_node()) is Power.UNKNOWN


async def test_without_a_session_no_boot_device_is_tried(tmp_path: Path) -> None:
    hammer = _ipmitool(tmp_path, f'echo "$*" >>{tmp_path}/calls; echo "> RAKP 2 HMAC is invalid" >&2; exit 1')
    with pytest.raises(HammerFailed, match="refuses the user name or the password"):
        await hammer.boot_device(_node(), BootDevice.NETWORK)
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("192.0.2.7", "-H 192.0.2.7 -p 623 "),
        ("bmc-n1.example", "-H bmc-n1.example -p 623 "),
        ("bmc-n1.example:9623", "-H bmc-n1.example -p 9623 "),
        ("2001:db8::7", "-H 2001:db8::7 -p 623 "),
        ("[2001:db8::7]:9623", "-H 2001:db8::7 -p 9623 "),
    ],
)
async def test_an_address_is_a_host_with_or_without_a_port(tmp_path: Path, address: str, reached: str) -> None:
    hammer = _ipmitool(tmp_path, f'echo "$*" >>{tmp_path}/calls')
    await hammer.status(HammerNode(1, "n1.example", {"bmc": {"address": address}}))
    call = (tmp_path / "calls").read_text()
    assert reached in call
    assert " -C 17 " in call, "also where nobody said a suite"


async def test_the_password_is_in_the_environment_and_nothing_else_of_the_servers_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    await _ipmitool(tmp_path, f"env >{tmp_path}/environment").status(_node())
    environment = (tmp_path / "environment").read_text()
    assert "IPMITOOL_PASSWORD=secret\n" in environment
    assert "SECRET_OF_THE_SERVER" not in environment
