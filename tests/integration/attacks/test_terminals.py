"""What strangers say, read by the administrator at a terminal: it is shown, and commands nothing.

A machine's inventory is its own to choose. Whatever shows it writes control characters out, and takes no words in
brackets for colours. A name that is copied from there stays a name: it is no path to something else.
"""

from collections.abc import Iterator

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.machines.signed_registration import registration, signed
from tests.support.servers.command_line import Cli, served
from tests.support.waiting import PATIENCE

from rackwright.cli.output.exits import Exit

ATTACK = "[/]\x1b]0;owned\x07\x9b2J\u202e"
MAC = "52:54:00:ab:cd:01"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with (
        served(tmp_path_factory.mktemp("server"), "--manual", "--lab") as cli,
        httpx.Client(base_url=f"{cli.url}/api/v2", timeout=PATIENCE, trust_env=False) as stranger,
    ):
        private = Ed25519PrivateKey.generate()
        challenge = stranger.get("/machine/challenge").json()["challenge"]
        body = registration(private, challenge, [MAC], inventory={"vendor": ATTACK})
        assert stranger.post("/nodes/register", content=body, headers=signed(private, body)).status_code == 201
        yield cli


def node_of(cli: Cli) -> str:
    [node] = [node["name"] for node in cli.json("node", "list") if MAC in node["macs"]]
    return str(node)


def assert_harmless(text: str) -> None:
    assert "owned" in text, "it is shown"
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_what_a_machine_says_is_shown_and_not_obeyed(cli: Cli, form: str) -> None:
    assert_harmless(cli.ok("node", "show", node_of(cli), "-o", form).out)


def test_json_says_what_was_said(cli: Cli) -> None:
    assert cli.json("node", "show", node_of(cli))["discovery"]["vendor"] == ATTACK


@pytest.mark.parametrize("name", [ATTACK, "x/owned", "../owned", "owned?limit=1", "owned#", "%2e%2e%2fowned"])
def test_a_name_that_was_copied_from_somewhere_asks_for_nothing_else(cli: Cli, name: str) -> None:
    ended = cli("node", "show", name)
    assert ended.code in (Exit.USAGE, Exit.NOT_FOUND)
    assert_harmless(ended.err)
