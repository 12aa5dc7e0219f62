"""What the IPMI hammer makes of ipmitool's words, for what no simulated BMC can be brought to answer."""

from pathlib import Path

import pytest

from rackwright.hammers.base import BootDevice, HammerFailed, HammerNode, Power
from rackwright.hammers.ipmi import IpmiHammer

NO_SESSION = "Error: Unable to establish IPMI v2 / RMCP+ session"
NOISE = "Loading IANA PEN Registry...\nInvalid completion code received: Insufficient privilege level"


def _node(suite: int = 17) -> HammerNode:
    bmc = {"address": "192.0.2.7", "username": "ops", "password": "secret", "cipher_suite": suite}
    return HammerNode(1, "n1.example", {"bmc": bmc})  # type: ignore[dict-item]


def _ipmitool(folder: Path, script: str) -> IpmiHammer:
    path = folder / "ipmitool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return IpmiHammer(str(path))


def _failing(folder: Path, said: str) -> IpmiHammer:
    (folder / "said").write_text(said)
    return _ipmitool(folder, f"cat {folder}/said >&2; exit 1")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("> RAKP 2 HMAC is invalid", "refuses the user name or the password"),
        ("RAKP 2 message indicates an error : unauthorized name", "refuses the user name or the password"),
        ("RAKP 2 message indicates an error : unauthorized role or privilege level requested", "level Operator"),
        ("Set Session Privilege Level to OPERATOR failed", "does not let 'ops' switch power"),
        (
            "Error in open session response message : no cipher suite match with proposed security algorithms",
            "suite 17",
        ),
        ("Error in open session response message : invalid integrity algorithm", "--kind ipmi --cipher-suite 3"),
        ("Get Auth Capabilities error", "does not answer. Is IPMI over LAN enabled there, and UDP port 623 open?"),
        ("Address lookup for bmc-n1 failed\nCould not open socket!", "n1.example at 192.0.2.7: Could not open socket!"),
        ("", "no session, and no reason said"),
    ],
)
async def test_why_there_is_no_session_is_told(tmp_path: Path, said: str, told: str) -> None:
    with pytest.raises(HammerFailed) as failure:
        await _failing(tmp_path, f"{said}\n{NO_SESSION}\n" if said else f"{NO_SESSION}\n").on(_node())
    assert told in str(failure.value)
    assert "secret" not in str(failure.value)


async def test_a_refused_order_is_told_in_the_words_of_the_bmc(tmp_path: Path) -> None:
    refused = "Set Chassis Power Control to Reset failed: Command not supported in present state"
    with pytest.raises(HammerFailed, match=refused):
        await _failing(tmp_path, f"{NOISE}\n{refused}\n").on(_node())


async def test_a_bmc_that_refuses_the_weak_suite_is_not_said_to_need_it(tmp_path: Path) -> None:
    with pytest.raises(HammerFailed, match=r"does not speak cipher suite 3\. Go back") as failure:
        await _failing(tmp_path, "no cipher suite match with proposed security algorithms").on(_node(suite=3))
    assert "--cipher-suite" not in str(failure.value)


async def test_an_answer_that_says_neither_on_nor_off_is_unknown(tmp_path: Path) -> None:
    assert await _ipmitool(tmp_path, "echo Chassis Power is sleepy").status(_node()) is Power.UNKNOWN


@pytest.mark.parametrize("knows", [True, False])
async def test_the_boot_device_is_set_also_where_the_bmc_cannot_keep_it(tmp_path: Path, knows: bool) -> None:
    refusal = (
        "Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x8 rsp=0xcc): Invalid data field in request"
    )
    answer = ":" if knows else f"echo '{refusal}' >&2; exit 1"
    hammer = _ipmitool(tmp_path, f'case "$*" in *" raw "*) {answer} ;; *) echo "$*" >>{tmp_path}/calls ;; esac')
    await hammer.boot_device(_node(), BootDevice.DISK)
    [call] = (tmp_path / "calls").read_text().splitlines()
    assert call.endswith(" chassis bootdev disk")


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
