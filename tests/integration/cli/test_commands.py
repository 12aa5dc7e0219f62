"""Every command against a real server: its table, its JSON, and one mistake with the way out of it.

The server has no annealer, so that nothing changes but by the commands themselves.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.cells import cell_len
from rich.text import Text
from tests.support.machines.signed_registration import registration, signed
from tests.support.servers.command_line import Cli, served
from tests.support.servers.server_processes import RACKWRIGHT
from tests.support.waiting import PATIENCE

from rackwright.cli.main import NOUNS, is_function, load
from rackwright.cli.output.exits import Exit
from rackwright.client import calls
from rackwright.lab.lldp import in_base64, switch_frame

NODE = "n1.rack.example"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A server with two nodes, a deployment with something committed and something proposed, and a run that failed."""
    with served(tmp_path_factory.mktemp("server"), "--manual", "--test-barclamp", "--lab") as cli:
        for name in (NODE, "n2.rack.example"):
            cli.ok("node", "create", name, "--alive")
        cli.ok("deployment", "create", "web", "--description", "The shop")
        cli.ok("node", "bind", NODE, "test-child", "web")
        cli.ok("deployment", "commit", "web", "-m", "the first", "--yes")
        for _ in range(10):
            cli.ok("anneal", "step")
        cli.ok("deployment", "propose", "web")
        cli.ok("group", "create", "rack", "r1")
        cli.ok("network", "create", "admin", "--v4", "10.20.0.0/24", "--range", "host:10.20.0.10-10.20.0.20")
        cli.ok("user", "create", "grace", "--role", "viewer", "--password-stdin", stdin="correct horse battery\n")
        yield cli


READ = [
    ("node list", NODE),
    (f"node show {NODE}", "deployment"),
    ("key list", "SHA256:"),
    ("group list", "r1"),
    ("group show rack:r1", "rack"),
    ("network list", "10.20.0.0/24"),
    ("network show admin", "10.20.0.10"),
    ("network allocations admin", "No address"),
    ("domain list", "internal"),
    ("deployment list", "web"),
    ("deployment show web", "The shop"),
    ("deployment plan web", "digest"),
    ("deployment diff web", "They are the same"),
    ("deployment snapshots web", "the first"),
    ("deployment graph web", "test-child"),
    ("deployment role list web", "test-child"),
    ("deployment role show web test-child", "leaving"),
    ("deployment systems", "debian-12"),
    ("noderole list", "test-child"),
    ("noderole show 1", "role"),
    ("noderole why 1", "STATE"),
    ("anneal status", "cap"),
    ("anneal cap", "10"),
    ("run list", "STATE"),
    ("run show 1", "jig"),
    ("event list", "deployment.created"),
    ("hook list", "No hook fails"),
    ("image list", "No images"),
    ("barclamp list", "core"),
    ("barclamp show core", "roles"),
    ("role list", "test-child"),
    ("role show test-child", "requires"),
    ("jig list", "script"),
    ("jig show script", "kind"),
    ("attrib list", "MAP"),
    (f"attrib values node/{NODE}", "SOURCE"),
    ("hammer list", "KIND"),
    ("user list", "grace"),
    ("user show grace", "viewer"),
    ("token list", "SCOPE"),
    ("config show", "port"),
    ("config client", "url"),
]


@pytest.mark.parametrize(("command", "shown"), READ, ids=[command for command, _ in READ])
def test_what_is_read_is_shown_as_a_table_and_as_json(cli: Cli, command: str, shown: str) -> None:
    words = command.split()
    assert shown in cli.ok(*words).out
    assert isinstance(cli.json(*words), dict | list)


MISTAKES = [
    ("node show nosuch.rack.example", Exit.NOT_FOUND, "nosuch.rack.example"),
    ("node list -f colour=red", Exit.USAGE, "colour"),
    ("node list --columns colour", Exit.USAGE, "colour"),
    ("node create UPPER", Exit.USAGE, "UPPER"),
    (f"node create {NODE}", Exit.CONFLICT, NODE),
    (f"node update {NODE} --set description", Exit.USAGE, "NAME=VALUE"),
    (f"node delete {NODE}", Exit.USAGE, "--yes"),
    (f"node bind {NODE} nosuch web", Exit.NOT_FOUND, "nosuch"),
    (f"node move {NODE} nosuch", Exit.NOT_FOUND, "nosuch"),
    ("node accept nosuch.rack.example", Exit.NOT_FOUND, "nosuch"),
    (f"node power {NODE} off", Exit.USAGE, "--yes"),
    (f"node bmc {NODE} --address b1 --password-stdin --kind ipmi --cipher-suite 0", Exit.USAGE, "cipher_suite"),
    (f"node bmc {NODE} --address b1 --password hidden", Exit.USAGE, "--password-stdin"),
    (f"node update {NODE} --set description=@nosuch.file", Exit.USAGE, "nosuch.file"),
    (f"node reinstall {NODE} --yes", Exit.NOT_FOUND, NODE),
    ("node watch nosuch.rack.example --once", Exit.NOT_FOUND, "nosuch"),
    ("group show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("group create rack r1", Exit.CONFLICT, "r1"),
    ("group add rack:r1 nosuch.rack.example", Exit.NOT_FOUND, "nosuch"),
    ("network create admin --v4 10.20.0.0/24", Exit.CONFLICT, "admin"),
    ("network create other --v4 nonsense", Exit.USAGE, "nonsense"),
    ("network create other --range nonsense", Exit.USAGE, "NAME:FIRST-LAST"),
    ("deployment show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("deployment create web", Exit.CONFLICT, "web"),
    ("deployment propose system", Exit.CONFLICT, "system"),
    ("deployment recall web", Exit.CONFLICT, "web"),
    ("deployment discard web", Exit.USAGE, "--yes"),
    ("deployment commit web --digest stale", Exit.CONFLICT, "plan"),
    ("deployment rollback web 999999", Exit.NOT_FOUND, "999999"),
    ("deployment delete system --yes", Exit.CONFLICT, "system"),
    ("deployment graph nosuch", Exit.NOT_FOUND, "nosuch"),
    ("noderole show 999999", Exit.NOT_FOUND, "999999"),
    ("noderole why 999999", Exit.NOT_FOUND, "999999"),
    ("noderole log 999999", Exit.NOT_FOUND, "999999"),
    ("noderole retry", Exit.USAGE, "--all"),
    ("noderole delete 1", Exit.USAGE, "--yes"),
    ("anneal cap many", Exit.USAGE, "auto"),
    ("anneal cap 0", Exit.USAGE, "rackwright: cap must be at least 1\n"),
    ("anneal step 999999", Exit.NOT_FOUND, "999999"),
    ("run show 999999", Exit.NOT_FOUND, "999999"),
    ("run log 999999", Exit.NOT_FOUND, "999999"),
    ("run cancel 1 --yes", Exit.CONFLICT, "1"),
    ("event list --since nonsense", Exit.USAGE, "cursor"),
    ("hook retry 999999", Exit.NOT_FOUND, "999999"),
    ("barclamp show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("barclamp check /nonexistent", Exit.USAGE, "/nonexistent"),
    ("role show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("jig show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("jig activate nosuch", Exit.NOT_FOUND, "nosuch"),
    ("attrib show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("attrib values elsewhere", Exit.USAGE, "node/NAME"),
    (f"attrib set node/{NODE} nosuch 1", Exit.NOT_FOUND, "nosuch"),
    ("hammer show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("user show nosuch", Exit.NOT_FOUND, "nosuch"),
    ("user delete admin", Exit.USAGE, "--yes"),
    ("token create x --expires-at yesterday", Exit.USAGE, "expires_at"),
    ("token delete 999999 --yes", Exit.NOT_FOUND, "999999"),
    *(
        (f"noderole list -f {name}=x", Exit.USAGE, name)
        for name in ("path", "method", "body", "self", "limit", "cursor")
    ),
    ("noderole list --node a.example -f node=b.example", Exit.USAGE, "--node"),
    ("config show --config /nonexistent.toml", Exit.USAGE, "/nonexistent.toml"),
]


@pytest.mark.parametrize(("command", "code", "names"), MISTAKES, ids=[command for command, _, _ in MISTAKES])
def test_a_mistake_is_one_sentence_that_names_it(cli: Cli, command: str, code: Exit, names: str) -> None:
    ended = cli(*command.split())
    assert ended.code == code, f"{ended.code}: {ended.err}{ended.out}"
    assert names in ended.err
    assert ended.err.startswith("rackwright: ")
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err


def _with_tables() -> set[str]:
    """Return all commands that show a table."""
    commands = set()
    for noun in NOUNS:
        app = load(noun)
        for command in [] if is_function(app) else app.registered_commands:
            if getattr(command.callback, "columns", ()):
                commands.add(f"{noun} {command.name or command.callback.__name__}")
    return commands


TABLES = [command for command, _ in READ if " ".join(command.split()[:2]) in _with_tables()]


def test_every_table_is_among_what_is_tried() -> None:
    acts = {"anneal step", "deployment bind", "node bind", "node accept", "noderole retry"}
    acts |= {"deployment rename", "deployment move"}
    assert {" ".join(command.split()[:2]) for command in TABLES} == _with_tables() - acts


LONG = "compute-0123-of-the-second-row.rack-17.frankfurt.datacenter.example"


@pytest.fixture(scope="module")
def long_names(cli: Cli) -> None:
    """Deployments, nodes, groups and the like with names as long as people give them."""
    deployment = "the-shop-and-all-of-its-databases-in-frankfurt"
    cli.ok("deployment", "create", deployment, "--description", "The shop " * 20)
    cli.ok("node", "create", LONG, "--alive")
    cli.ok("node", "bind", LONG, "test-child", deployment)
    cli.ok("deployment", "commit", deployment, "--yes", "-m", "What was agreed upon in the long meeting " * 3)
    cli.ok("anneal", "step")
    cli.ok("group", "create", "data-centre-row", "the-second-row-from-the-door-on-the-left", "--description", "x " * 80)
    cli.ok("group", "add", "data-centre-row:the-second-row-from-the-door-on-the-left", LONG)
    cli.ok("network", "create", "storage-of-the-shop-in-frankfurt", "--v6", "fd00:1234:5678:9abc::/64")
    cli.ok("token", "create", "for the monitoring of all racks that are in Frankfurt", "--deployment", deployment)


@pytest.mark.usefixtures("long_names")
@pytest.mark.parametrize("command", TABLES)
def test_what_is_shown_fits_a_terminal_of_80_columns(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cli, "environment", cli.environment | {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm"})
    words = command.split()
    shown, _, _ = cli.ok(*words).out.partition("Left out")
    lines = [Text.from_ansi(line).plain for line in shown.splitlines()]
    assert [line for line in lines if cell_len(line) > 80] == []
    rows = cli.json(*words)
    assert not rows or len([line for line in lines if line]) == 1 + len(rows), "a line each, and the heading"


@pytest.mark.usefixtures("long_names")
def test_what_is_piped_is_never_cut(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cli, "environment", cli.environment | {"COLUMNS": "40"})
    lines = cli.ok("noderole", "list").out.splitlines()
    assert any(LONG in line and "the-shop-and-all-of-its-databases-in-frankfurt" in line for line in lines)
    assert LONG in cli.ok("node", "show", LONG).out


def test_of_one_thing_just_the_columns_asked_for_are_shown(cli: Cli) -> None:
    assert cli.ok("node", "show", NODE, "--columns", "name,alive").out.split() == ["name", NODE, "alive", "yes"]
    assert cli.ok("node", "show", NODE, "--columns", "uuid").out.split() == ["uuid"]
    wrong = cli("node", "show", NODE, "--columns", "name,colour")
    assert (wrong.code, "colour" in wrong.err) == (Exit.USAGE, True)


def test_yaml_and_columns(cli: Cli) -> None:
    assert "name: web" in cli.ok("deployment", "show", "web", "-o", "yaml").out
    assert cli.json("node", "list", "-f", f"name={NODE}", "--columns", "name,alive") == [{"name": NODE, "alive": True}]


def test_what_has_an_option_of_its_own_is_a_filter_too(cli: Cli) -> None:
    by_option = cli.json("noderole", "list", "--node", NODE)
    assert by_option
    assert cli.json("noderole", "list", "-f", f"node={NODE}") == by_option


def test_a_node_lives_from_create_to_delete(cli: Cli) -> None:
    name = "short.rack.example"
    assert cli.json("node", "create", name, "--mac", "52:54:00:aa:bb:cc")["macs"] == ["52:54:00:aa:bb:cc"]
    assert cli.json("node", "update", name, "--set", "description=Third", "--set", "stay_on=true")["stay_on"] is True
    cli.ok("group", "add", "rack:r1", name)
    assert name in cli.json("group", "show", "rack:r1")["nodes"]
    cli.ok("group", "remove", "rack:r1", name, "--yes")
    cli.ok("network", "allocate", "admin", name, "--address", "10.20.0.15")
    assert "10.20.0.15" in cli.ok("network", "allocations", "admin").out
    cli.ok("network", "free", "admin", "10.20.0.15", "--yes")
    cli.ok("node", "delete", name, "--yes")
    assert cli("node", "show", name).code == Exit.NOT_FOUND


def test_a_value_is_taken_from_a_file_or_from_standard_input(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "description"
    file.write_text("from a file\n")
    assert cli.json("node", "update", NODE, "--set", f"description=@{file}")["description"] == "from a file"
    assert cli.json("node", "update", NODE, "--set", "description=@-", stdin="typed\n")["description"] == "typed"
    assert cli.json("node", "update", NODE, "--set", 'description="@home"')["description"] == "@home"


def test_all_that_wait_are_accepted_and_who_was_set_aside_is_not(cli: Cli) -> None:
    cli.ok("node", "update", NODE, "--set", "available=false")
    private, macs = Ed25519PrivateKey.generate(), ["52:54:00:aa:bb:ee"]
    _register(cli, private, macs)
    assert [node["macs"] for node in cli.json("node", "accept", "--all")] == [macs]
    assert cli.json("node", "show", NODE)["available"] is False
    cli.ok("node", "accept", NODE)
    cli.ok("node", "delete", "d525400aabbee.discovered.internal", "--yes")


def _register(cli: Cli, private: Ed25519PrivateKey, macs: list[str], **others: Any) -> None:
    with httpx.Client(base_url=f"{cli.url}/api/v2", timeout=PATIENCE, trust_env=False) as machine:
        challenge = machine.get("/machine/challenge").json()["challenge"]
        body = registration(private, challenge, macs, **others)
        answer = machine.post("/nodes/register", content=body, headers=signed(private, body))
    assert answer.status_code == 201, answer.text


def test_what_a_bmc_speaks_is_said_with_how_it_is_reached(cli: Cli) -> None:
    name = "old.rack.example"
    cli.ok("node", "create", name)
    reached = ("--address", "b1.example", "--username", "ops", "--password-stdin")
    cli.ok("node", "bmc", name, "--kind", "ipmi", *reached, "--cipher-suite", "3", stdin="hidden\n")
    bmc = cli.json("node", "show", name)["hint"]["bmc"]
    assert (bmc["kind"], bmc["address"], bmc["cipher_suite"]) == ("ipmi", "b1.example", 3)
    assert "hidden" not in str(bmc)
    cli.ok("node", "delete", name, "--yes")


def test_a_node_is_shown_with_where_its_cables_lead(cli: Cli) -> None:
    private = Ed25519PrivateKey.generate()
    macs = ["52:54:00:aa:bb:dd"]
    inventory = {
        "links": [{"name": "eth0", "mac": macs[0], "up": True, "speed": 1000}],
        "lldp": {"eth0": in_base64(switch_frame(7))},
    }
    _register(cli, private, macs, inventory=inventory)
    name = "d525400aabbdd.discovered.internal"
    assert f"{macs[0]}, up, 1000 Mbit/s, connected to leaf-1 port Ethernet7\n" in cli.ok("node", "show", name).out
    assert cli.json("node", "show", name)["discovery"]["lldp"]["eth0"]["port"] == "Ethernet7"
    cli.ok("node", "delete", name, "--yes")


def test_two_at_once_on_one_node_do_not_overwrite_each_other(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    read = calls.read_if_match

    def someone_is_quicker(retry: calls.RetryPolicy, path: str) -> calls.Steps[dict[str, str]]:
        headers = yield from read(retry, path)
        monkeypatch.setattr(calls, "read_if_match", read)
        cli.ok("node", "update", "n2.rack.example", "--set", "description=quicker")
        return headers

    monkeypatch.setattr(calls, "read_if_match", someone_is_quicker)
    ended = cli("node", "update", "n2.rack.example", "--set", "description=slower")
    assert ended.code == Exit.CONFLICT
    assert cli.json("node", "show", "n2.rack.example")["description"] == "quicker"


def test_a_dry_run_for_several_nodes_tells_the_reason_of_each_that_refuses(cli: Cli) -> None:
    cli.ok("deployment", "create", "tried")
    nodes = [f"tried{number}.rack.example" for number in (1, 2, 3)]
    for node in nodes:
        cli.ok("node", "create", node)
    for node in nodes[:2]:
        cli.ok("node", "bind", node, "test-conflict-says", "tried")
    ended = cli("deployment", "bind", "tried", "test-conflict-silent", *nodes, "nowhere", "--dry-run")
    assert ended.code == Exit.CONFLICT
    assert [line.split(":")[1].split()[-1] for line in ended.err.splitlines()[:2]] == nodes[:2]
    assert "nowhere" in ended.err.splitlines()[2]
    ended = cli("deployment", "bind", "tried", "no-such-role", *nodes, "--dry-run")
    assert (ended.code, len(ended.err.splitlines())) == (Exit.NOT_FOUND, 1)
    # All at once: what is bound for the first node is there for the second.
    created = cli.json("deployment", "bind", "tried", "test-child", *nodes, "--dry-run")
    roles = [noderole["role"] for noderole in created]
    assert (roles.count("test-parent"), roles.count("test-child")) == (1, 3)


def test_a_deployment_goes_from_proposal_to_commit_and_back(cli: Cli) -> None:
    cli.ok("deployment", "create", "mail")
    assert cli.json("node", "bind", "n2.rack.example", "test-child", "mail", "--dry-run")
    assert cli.json("deployment", "bind", "mail", "test-child", "n2.rack.example", "--dry-run")
    cli.ok("deployment", "bind", "mail", "test-child", "n2.rack.example")
    plan = cli.ok("deployment", "plan", "mail").out
    assert "+ test-child on n2.rack.example" in plan
    cli.ok("deployment", "commit", "mail", "--yes")
    first = cli.json("deployment", "snapshots", "mail")[0]["id"]
    cli.ok("deployment", "recall", "mail")
    cli.ok("deployment", "discard", "mail", "--yes")
    cli.ok("deployment", "rollback", "mail", str(first))
    assert "proposed" in cli.ok("deployment", "snapshots", "mail").out


def test_a_deployment_whose_only_proposal_was_discarded_shows_none(cli: Cli) -> None:
    cli.ok("deployment", "create", "brief")
    assert cli.json("deployment", "show", "brief")["state"] == "proposed"
    assert "empty" in cli.ok("deployment", "discard", "brief", "--yes").out
    assert "proposed" not in cli.ok("deployment", "show", "brief").out
    cli.ok("deployment", "propose", "brief")
    assert cli.json("deployment", "show", "brief")["state"] == "proposed"


def test_a_role_is_given_data_before_it_is_bound_and_taken_out_again(cli: Cli) -> None:
    cli.ok("node", "create", "n7.rack.example")
    cli.ok("deployment", "create", "roles")
    cli.ok("deployment", "role", "add", "roles", "test-child", "--set", "port=81")
    cli.ok("deployment", "role", "update", "roles", "test-child", "--set", "host=a")
    assert cli.json("deployment", "role", "show", "roles", "test-child")["data"] == {"port": 81, "host": "a"}
    cli.ok("deployment", "bind", "roles", "test-child", "n7.rack.example")
    cli.ok("deployment", "commit", "roles", "--yes")
    cli.ok("deployment", "propose", "roles")
    asked = cli("deployment", "role", "remove", "roles", "test-child")
    assert (asked.code, "--yes" in asked.err) == (Exit.USAGE, True)
    assert "n7.rack.example" in cli.ok("deployment", "role", "remove", "roles", "test-child", "--yes").out
    roles = cli.json("deployment", "role", "list", "roles")
    leaving = {role["role"] for role in roles if role["leaving"]}
    assert leaving == {"test-child"}
    assert "- role test-child leaves the deployment" in cli.ok("deployment", "plan", "roles").out
    wrong = cli("deployment", "role", "remove", "roles", "test-service", "--yes")
    assert (wrong.code, "deployment role add" in wrong.err) == (Exit.NOT_FOUND, True)
    cli.ok("deployment", "discard", "roles", "--yes")


def test_what_a_change_of_the_system_deployment_makes_run_again_is_said_and_asked_first(cli: Cli) -> None:
    change = ("deployment", "role", "update", "system", "crowbar-managed-node", "--set", "y=2")
    planned = cli.ok(*change, "--plan").out
    assert f"~ crowbar-managed-node on {NODE}" in planned
    asked = cli(*change)
    assert (asked.code, "run again" in asked.err) == (Exit.USAGE, True)
    assert cli.json("deployment", "role", "show", "system", "crowbar-managed-node")["data"] == {}
    cli.ok(*change, "--yes")
    assert cli.json("deployment", "role", "show", "system", "crowbar-managed-node")["data"] == {"y": 2}
    planned = cli.ok("attrib", "unset", "deployment/web", "test-parent-default", "--plan").out
    assert "~ test-parent on" in planned
    assert cli("attrib", "set", f"node/{NODE}", "hint", "1", "--plan").code == Exit.USAGE


def test_a_deployment_is_renamed_and_moved(cli: Cli) -> None:
    cli.ok("deployment", "create", "first")
    cli.ok("deployment", "create", "second")
    cli.ok("deployment", "rename", "second", "other")
    assert "first" in cli.ok("deployment", "move", "other", "first").out
    assert cli.json("deployment", "show", "other")["parent"] == "first"
    assert cli("deployment", "move", "first", "other").code == Exit.CONFLICT


def test_who_logs_in_is_known_until_they_log_out(cli: Cli) -> None:
    password = (cli.home / "admin-password").read_text()
    assert "You are admin" in cli.ok("login", cli.url, "--password-stdin", stdin=password).out
    assert "login.json" in cli.json("config", "client")["token"]
    assert "Logged out" in cli.ok("logout").out
    assert "admin-token" in cli.json("config", "client")["token"]
    wrong = cli("login", cli.url, "--password-stdin", stdin="wrong\n")
    assert wrong.code == Exit.NOT_ALLOWED


def test_a_token_works_until_it_is_revoked(cli: Cli) -> None:
    token = cli.json("token", "create", "for a test", "--scope", "read")
    assert token["token"].startswith("rw_")
    assert "for a test" in cli.ok("token", "list").out
    cli.ok("token", "delete", str(token["id"]), "--yes")
    assert "for a test" not in cli.ok("token", "list").out


def test_a_server_is_found_at_whatever_port_it_listens(cli: Cli) -> None:
    here = {**cli.environment, "RACKWRIGHT_URL": ""}
    done = subprocess.run(
        [RACKWRIGHT, "config", "client", "--json"], env=here, capture_output=True, check=True, timeout=PATIENCE
    )
    assert json.loads(done.stdout)["url"] == cli.url
    there = [str(RACKWRIGHT), "--url", "http://me:hunter2@127.0.0.1:1", "node", "list"]
    ended = subprocess.run(there, env=here, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == Exit.UNREACHABLE
    assert "127.0.0.1:1" in ended.stderr
    assert "hunter2" not in ended.stderr


def test_without_a_server_the_way_to_one_is_told(cli: Cli) -> None:
    ended = Cli("http://127.0.0.1:1", cli.home)("node", "list")
    assert ended.code == Exit.UNREACHABLE
    assert "rackwright server" in ended.err


def test_who_is_not_logged_in_is_told_how(cli: Cli) -> None:
    ended = Cli(cli.url, cli.home / "elsewhere")("node", "list")
    assert ended.code == Exit.NOT_ALLOWED
    assert "rackwright login" in ended.err


HOOKS = """
from rackwright.domain.hooks import RoleHooks

class Calm(RoleHooks):
    role = "calm"
    def on_node_create(self, node): ...

class Wild(RoleHooks):
    role = "wild"
    def on_node_create(self, node):
        raise ValueError("not today")
"""


def test_a_step_says_of_each_hook_whether_it_is_done_or_failed(cli: Cli, tmp_path: Path) -> None:
    roles = "[{name: calm, jig: noop}, {name: wild, jig: noop}]"
    (tmp_path / "barclamp.yml").write_text(f"name: hooked\nroles: {roles}\n")
    (tmp_path / "roles.py").write_text(HOOKS)
    cli.ok("barclamp", "import", str(tmp_path))
    cli.ok("anneal", "step")
    cli.ok("node", "create", "n9.rack.example", "--alive")
    lines = {line["what"]: line for line in cli.json("anneal", "step")}
    assert lines["calm.on_node_create"]["outcome"] == "done"
    assert lines["wild.on_node_create"]["outcome"] == "failed"
    assert "not today" in lines["wild.on_node_create"]["because"]
