"""Joining over SSH: three servers in network namespaces, a real sshd on the two that want in."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.machines.sshd import Sshd, sshd
from tests.support.mesh.netns import fleet, network

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.errors import Unreachable

SERVERS = ["s1", "s2", "s3"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A cluster of one, and two servers outside."""
    with network(SERVERS) as wires, fleet(tmp_path_factory.mktemp("house"), SERVERS, wires) as made:
        made.rackwright("s1", "mesh", "init", "--name", "s1", "--advertise", made.address("s1"))
        made.start("s1")
        yield made


@pytest.fixture(scope="module")
def doors(house: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sshd]]:
    folder = tmp_path_factory.mktemp("doors")
    assert house.network is not None
    line = house.rackwright("s1", "mesh", "ssh-key").strip()
    with sshd(folder / "s2", house.network, "s2") as second, sshd(folder / "s3", house.network, "s3") as third:
        second.authorize(line)
        third.authorize(line)
        yield {"s2": second, "s3": third}


def invite(house: Fleet, server: str, host_key: str) -> None:
    assert house.network is not None
    place = str(house.home(server))
    where = house.network.address(server)
    house.rackwright("s1", "mesh", "invite", server, where, "--host-key", host_key, "--folder", place)


def join(house: Fleet, server: str, name: str | None = None, ca: str | None = None, through: str = "s1") -> str:
    ca = ca or house.ask("s1", "status")["ca"]
    arguments = ["join", house.address(through), "--ca-fingerprint", ca, "--name", name or server]
    return house.rackwright(server, "mesh", *arguments)


def refusals(house: Fleet, reason: str) -> float:
    return house.metric("s1", f'rackwright_mesh_refused_total{{reason="{reason}"}}')


def logged(house: Fleet, reason: str) -> bool:
    return any(line["event"] == "refused" and line["reason"] == reason for line in house.log("s1"))


def records(house: Fleet) -> dict[str, object]:
    content = json.loads((house.home("s1") / "records.json").read_bytes().partition(b"\n")[2])
    assert isinstance(content, dict)
    return content


def identity(folder: Path) -> bool:
    return (folder / "node.pem").exists() or (folder / "join.crt").exists()


def test_an_uninvited_server_is_refused_and_never_dialled(house: Fleet, doors: dict[str, Sshd]) -> None:
    before, kept = refusals(house, "not_invited"), records(house)
    with pytest.raises(Unreachable, match="s3 has not been invited"):
        join(house, "s3")
    assert refusals(house, "not_invited") == before + 1
    assert logged(house, "not_invited")
    assert doors["s3"].visits() == 0
    assert records(house) == kept
    assert not identity(house.home("s3"))


def test_a_differing_host_key_is_refused_and_nothing_is_signed(house: Fleet, doors: dict[str, Sshd]) -> None:
    before = refusals(house, "host_key_differs")
    invite(house, "s3", doors["s2"].fingerprint())
    kept = records(house)
    with pytest.raises(Unreachable, match="shows the SSH host key"):
        join(house, "s3")
    assert refusals(house, "host_key_differs") == before + 1
    assert logged(house, "host_key_differs")
    assert records(house) == kept
    assert not identity(house.home("s3"))


def test_a_request_in_an_invited_name_from_elsewhere_is_refused(house: Fleet, doors: dict[str, Sshd]) -> None:
    before = refusals(house, "key_differs")
    invite(house, "s2", doors["s2"].fingerprint())
    kept = records(house)
    with pytest.raises(Unreachable, match="did not ask to join"):
        join(house, "s3", name="s2")
    assert refusals(house, "key_differs") == before + 1
    assert records(house) == kept
    assert not identity(house.home("s2"))
    assert not identity(house.home("s3"))


def test_a_wrong_ca_fingerprint_is_refused_by_the_joiner(house: Fleet, doors: dict[str, Sshd]) -> None:
    kept = records(house)
    wrong = "SHA256:" + "A" * 43
    with pytest.raises(Unreachable, match="another cluster or somebody in between"):
        join(house, "s2", ca=wrong)
    assert records(house) == kept
    assert not identity(house.home("s2"))


def test_invited_servers_join_through_any_member_and_all_see_each_other(house: Fleet, doors: dict[str, Sshd]) -> None:
    invite(house, "s2", doors["s2"].fingerprint())
    join(house, "s2")
    house.start("s2")
    house.wait_agree({"s1": "alive", "s2": "alive"}, ["s1", "s2"])
    # Through a member that does not hold the CA, and by the other kind of host key.
    invite(house, "s3", doors["s3"].fingerprint("rsa"))
    join(house, "s3", through="s2")
    house.start("s3")
    house.wait_agree(dict.fromkeys(SERVERS, "alive"))
    assert records(house)["invites"] == []
    assert not list(house.home("s3").glob("join.*"))
