"""The command line: what a script reads, what a person reads, and the way out when it cannot be done."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.mesh.netns import cluster
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh import control
from rackwright.mesh.address import parse_address
from rackwright.mesh.errors import Unreachable

SERVERS = ["s1", "s2", "s3"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with cluster(tmp_path_factory.mktemp("cli"), SERVERS) as made:
        yield made


def fails(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rackwright", *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


def test_members_come_as_json_for_scripts(three: Fleet) -> None:
    def told() -> list[tuple[str, str, bool]]:
        members = json.loads(three.rackwright("s2", "mesh", "members", "--json"))["members"]
        return [(member["name"], member["state"], member["self"]) for member in members]

    # On a busy machine somebody may be suspected for a while.
    expected = [("s1", "alive", False), ("s2", "alive", True), ("s3", "alive", False)]
    wait_until(lambda: told() == expected, "all are told to be alive", every=1.0)


def test_members_come_as_a_table_for_people(three: Fleet) -> None:
    wait_until(
        lambda: "3 of 3 servers alive" in three.rackwright("s2", "mesh", "members"), "all are shown alive", every=1.0
    )
    assert "s2 (here)" in three.rackwright("s2", "mesh", "members")


def test_status_names_the_ca_and_who_holds_it(three: Fleet) -> None:
    status = json.loads(three.rackwright("s3", "mesh", "status", "--json"))
    assert status["authorities"] == ["s1"]
    assert status["ca"].startswith("SHA256:")
    assert not status["holds_ca"]
    assert {server["name"] for server in status["servers"]} == set(SERVERS)


def test_a_watcher_sees_a_death_as_it_happens(three: Fleet) -> None:
    told = control.listen(three.home("s1"), "watch")
    assert len(next(told)["members"]) == 3
    three.kill("s3")
    dead = (part["member"]["name"] for part in told if part.get("event") == "dead")
    assert next(dead) == "s3"
    three.start("s3")
    three.wait_agree(dict.fromkeys(SERVERS, "alive"))


def test_the_control_socket_is_its_owners_only(three: Fleet) -> None:
    assert (three.home("s1") / control.SOCKET).stat().st_mode & 0o777 == 0o600


def test_what_needs_the_ca_says_where_it_is(three: Fleet) -> None:
    for arguments in (["token", "s4"], ["remove", "s3", "--yes"]):
        with pytest.raises(Unreachable, match="do it on a server that does: s1"):
            three.rackwright("s2", "mesh", *arguments)


def test_a_name_that_is_alive_is_not_given_away(three: Fleet) -> None:
    with pytest.raises(Unreachable, match="already alive"):
        three.rackwright("s1", "mesh", "token", "s2")


def test_an_unknown_server_cannot_be_removed(three: Fleet) -> None:
    with pytest.raises(Unreachable, match="there is no server 's9'"):
        three.rackwright("s1", "mesh", "remove", "s9", "--yes")


def test_an_invite_with_a_bad_fingerprint_or_a_host_name_is_refused(three: Fleet) -> None:
    with pytest.raises(Unreachable, match="ssh-keygen -lf"):
        three.rackwright("s1", "mesh", "invite", "s4", "10.0.0.4", "--host-key", "MD5:aa")
    with pytest.raises(Unreachable, match="is not an IP address"):
        three.rackwright("s1", "mesh", "invite", "s4", "evil.example", "--host-key", "SHA256:" + "A" * 43)


def test_two_agents_cannot_share_a_folder(three: Fleet) -> None:
    assert "another agent already runs" in fails("agent", "run", "--dir", str(three.home("s1")))


def test_without_an_agent_or_an_identity_the_way_out_is_named(tmp_path: Path) -> None:
    assert "start it with" in fails("mesh", "members", "--dir", str(tmp_path))
    assert "rackwright mesh join" in fails("agent", "run", "--dir", str(tmp_path))
    assert "--ca-fingerprint, or --token-file" in fails("mesh", "join", "--dir", str(tmp_path))


def test_a_server_that_belongs_to_a_cluster_does_not_found_or_join_another(three: Fleet) -> None:
    for arguments in (["init", "--advertise", "10.0.0.1"], ["join", "10.0.0.1", "--ca-fingerprint", "x"]):
        with pytest.raises(Unreachable, match="already belongs to a cluster"):
            three.rackwright("s2", "mesh", *arguments)


def test_a_bad_setting_is_named_when_the_agent_starts(three: Fleet, tmp_path: Path) -> None:
    for name in ("node.pem", "ca.pem", "agent.yml"):
        (tmp_path / name).write_bytes((three.home("s3") / name).read_bytes())
    with (tmp_path / "agent.yml").open("a") as settings:
        settings.write("probes: 3\n")
    assert "unknown setting 'probes'" in fails("agent", "run", "--dir", str(tmp_path))


def test_metrics_are_served_to_a_local_scraper(three: Fleet) -> None:
    wait_until(
        lambda: three.metric("s1", 'rackwright_mesh_members{state="alive"}') == 3, "all are counted as alive", every=0.2
    )
    assert "rackwright_mesh_swim_probes_total" in three.ask("s1", "metrics")["text"]


def test_leaving_ends_the_agent_and_is_known_to_the_others(three: Fleet) -> None:
    three.rackwright("s3", "mesh", "leave", "--yes")
    three.wait_agree({"s1": "alive", "s2": "alive", "s3": "left"}, ["s1", "s2"])
    three.start("s3")
    three.wait_agree(dict.fromkeys(SERVERS, "alive"))


def test_a_removed_server_ends_its_agent_and_comes_back_with_a_new_token(three: Fleet, tmp_path: Path) -> None:
    three.rackwright("s1", "mesh", "remove", "s3", "--yes")
    three.wait_agree({"s1": "alive", "s2": "alive"}, ["s1", "s2"])
    wait_until(lambda: not three.running("s3"), "the agent of the removed server has ended")
    assert any(line["event"] == "removed_from_cluster" for line in three.log("s3"))
    where = parse_address(three.address("s3"))
    told = json.loads(three.rackwright("s1", "mesh", "token", "s3", "--address", where.host, "--json"))
    held = tmp_path / "token"
    held.write_text(f"{told['token']}\n")
    three.rackwright("s3", "mesh", "join", "--again", "--token-file", str(held), "--advertise", str(where))
    three.start("s3")
    three.wait_agree(dict.fromkeys(SERVERS, "alive"))
