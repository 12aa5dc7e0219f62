"""The script jig against real sshd processes, each in namespaces of its own, and on the server's own host."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest
from tests.support.clock import pass_time
from tests.support.machines.script_trial import Trial, trial
from tests.support.machines.ssh_node import SshNode, ssh_node
from tests.support.processes import processes_naming
from tests.support.waiting import until, wait_until

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.runs import Answer
from rackwright.jigs.base import JigNode
from rackwright.reach.conversation import CLOSING_SECONDS
from rackwright.reach.parcel import NodeFolders
from rackwright.reach.ssh_connections import Target

KEY = asyncssh.generate_private_key("ssh-ed25519")

VALUES: dict[str, Json] = {
    "plain": "plain",
    "empty": "",
    "looks like a number": "0123",
    "looks like an exponent": "1e5",
    "hex": "deadbeef",
    "looks like a boolean": "true",
    "looks like null": "null",
    "blanks": "  two  ",
    "line end": "one\ntwo\n",
    "only line ends": "\n\n",
    "tab": "a\tb",
    "carriage return": "a\r\nb",
    "backslashes": "\\n \\\\ \\0101 \\c end\\",
    "quotes": 'it\'s "quoted" `echo no` $(echo no) $HOME ; & | *',
    "percent": "100% %s %b",
    "dash": "-n",
    "unicode": "Grüße, 世界 🎉",
    "long": "x" * 100_000,
}
JSON_VALUES: list[Json] = [
    None, True, False, 0, -17, 12345678901234567890, 1.5, 1e-7, "text", "", [], {}, [1, [2, {"a": None}]],
    {"a b": {"c/d": "x\ny\\"}},
]  # fmt: skip


@pytest.fixture(scope="module", params=["debian", "busybox"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshNode]:
    """A node, shared by the tests that leave it as they found it."""
    with ssh_node(tmp_path_factory.mktemp("node") / request.param, KEY, busybox=request.param == "busybox") as started:
        yield started


@pytest.fixture
async def on_node(node: SshNode, tmp_path: Path) -> AsyncIterator[Trial]:
    for claim in node.path(NodeFolders().locks).glob("claim-*"):
        claim.unlink()
    async with trial(tmp_path / "scripts", KEY, node.target()) as server:
        yield server
    assert node.left_behind() == []


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[SshNode]:
    """A node that a test may break."""
    with ssh_node(tmp_path / "node", KEY) as started:
        yield started


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Trial]:
    """The server's own host."""
    folders = NodeFolders(str(tmp_path / "locks"), str(tmp_path / "work"))
    async with trial(tmp_path / "scripts", KEY, Target("", local=True, folders=folders)) as server:
        yield server
    assert list((tmp_path / "work").iterdir()) == []
    wait_until(lambda: processes_naming(str(tmp_path)) == [], "nothing of the run is alive")


async def test_scripts_run_in_glob_order(on_node: Trial) -> None:
    on_node.scripts(**{"20-b": "echo second", "10-a": "#!/bin/sh\necho first", "100-c": "echo between them"})
    outcome = await on_node.run()
    assert outcome.answer is Answer.SUCCEEDED, outcome.error
    assert on_node.log == ["first", "between them", "second"]


async def test_scripts_see_the_attributes_and_who_they_run_for(on_node: Trial) -> None:
    on_node.scripts(
        a="""
        echo "$RACKWRIGHT_NODE $RACKWRIGHT_ROLE $RACKWRIGHT_RUN"
        read_attribute disks/1/name
        read_attribute /disks/0
        get_keys; get_keys disks; get_keys disks/0
        has_attribute nothing && echo yes
        has_attribute none && echo "null is there"
        has_attribute disks/2 || echo no
        cat attrs.json
        """
    )
    attributes: JsonObject = {"disks": [{"name": "sda", "size": 5}, {"name": "sdb"}], "none": None, "nothingness": 1}
    assert (await on_node.run(attributes)).error == ""
    expected = ["n1.example test 1", "sdb", '{"name":"sda","size":5}', "disks", "none", "nothingness", "0", "1"]
    expected += ["name", "size", "null is there", "no"]
    assert on_node.log[: len(expected)] == expected
    assert json.loads("\n".join(on_node.log[len(expected) :])) == attributes


async def test_strings_come_back_as_they_went(on_node: Trial) -> None:
    """Read by a helper, held in a shell variable, and written again."""
    on_node.scripts(
        a="""
        IFS='
'
        for key in $(get_keys in); do
            value=$(read_attribute "in/$key"; echo .)
            value=${value%?.}
            write_attribute "out/$key" "$value"
            read_attribute "out/$key" | write_attribute "piped/$key"
        done
        """
    )
    outcome = await on_node.run({"in": dict(VALUES)})
    assert outcome.error == ""
    assert outcome.wall == {"out": VALUES, "piped": VALUES}


async def test_json_comes_back_typed(on_node: Trial) -> None:
    on_node.scripts(
        a="""
        for key in $(get_keys in); do write_attribute -j "out/$key" "$(read_attribute "json/$key")"; done
        write_attribute -j text '"deadbeef"'
        """
    )
    values = {str(number): value for number, value in enumerate(JSON_VALUES)}
    texts: JsonObject = {key: json.dumps(value) for key, value in values.items()}
    outcome = await on_node.run({"in": dict(values), "json": texts})
    assert outcome.error == ""
    assert json.dumps(outcome.wall) == json.dumps({"out": values, "text": "deadbeef"})


async def test_strange_keys_are_found_and_written(on_node: Trial) -> None:
    keys = [
        "a/b",
        "c~d",
        "~1",
        "..",
        ".",
        "",
        "two words",
        "line\nend",
        "tab\tkey",
        "back\\slash",
        "é",
        "*",
        "-j",
        "x" * 300,
    ]
    on_node.scripts(
        a="""
        IFS='
'
        set -f
        for key in $(get_keys keys); do write_attribute "out/$key" "$(read_attribute "keys/$key")"; done
        write_attribute "out/" "$(read_attribute "keys/")"
        """
    )
    outcome = await on_node.run({"keys": {key: f"of {key!r}" for key in keys}})
    assert outcome.error == ""
    assert outcome.wall == {"out": {key: f"of {key!r}" for key in keys}}


async def test_a_later_script_reads_what_an_earlier_one_wrote(on_node: Trial) -> None:
    on_node.scripts(a="write_attribute x/y one; write_attribute x/y two", b="read_attribute x/y; get_keys x")
    outcome = await on_node.run({"x": {"z": 1, "y": "old"}})
    assert outcome.wall == {"x": {"y": "two"}}
    assert on_node.log == ["two", "z", "y"]


async def test_the_first_failing_script_ends_the_run_and_its_last_lines_are_shown(on_node: Trial) -> None:
    on_node.scripts(
        a="i=1; while [ $i -lt 23 ]; do echo line $i; i=$((i + 1)); done; echo oh no >&2; exit 7",
        b="echo never",
    )
    outcome = await on_node.run()
    assert outcome.answer is Answer.FAILED
    head, *tail = outcome.error.splitlines()
    assert head == "Script a.sh of role test failed on n1.example with exit status 7. Last lines:"
    assert tail == [f"line {number}" for number in range(4, 23)] + ["oh no"]
    assert "never" not in on_node.log


async def test_output_comes_while_the_script_runs(on_node: Trial, node: SshNode) -> None:
    on_node.scripts(a="echo waiting; until [ -e /run/go ]; do sleep 0.05; done; rm /run/go; echo went on")
    running = asyncio.create_task(on_node.run())
    await until(lambda: on_node.log == ["waiting"], "the script waits")
    node.path("/run/go").touch()
    assert (await running).error == ""
    assert on_node.log == ["waiting", "went on"]


async def test_a_megabyte_of_output_arrives_whole(on_node: Trial) -> None:
    on_node.scripts(a="i=0; while [ $i -lt 10000 ]; do printf '%0100d\\n' $i; i=$((i + 1)); done; printf unended")
    assert (await on_node.run()).error == ""
    assert on_node.log == [f"{number:0100d}" for number in range(10000)] + ["unended"]


async def test_a_hanging_script_is_ended_at_its_deadline(on_node: Trial, node: SshNode) -> None:
    """Also one that will not listen, and children in process groups of their own."""
    on_node.scripts(a="#!/bin/bash\ntrap '' TERM; echo hanging; set -m; sleep 1001 & while :; do sleep 1002; done")
    on_node.deadline = 3600
    running = asyncio.create_task(on_node.run())
    await until(lambda: any("sleep 1002" in command for command, _ in node.processes()), "the script hangs")
    await until(lambda: on_node.log == ["hanging"], "the script has said so")
    pass_time(3600)
    outcome = await running
    assert outcome.error.startswith(
        "Script a.sh of role test on n1.example did not end within its deadline of 3600 s."
        " It was ended there. Last lines:\nhanging"
    )
    assert node.left_behind() == []


async def test_a_cancelled_run_is_ended_on_the_node(on_node: Trial, node: SshNode) -> None:
    on_node.scripts(a="echo hanging; sleep 1000")
    running = asyncio.create_task(on_node.run())
    await until(lambda: on_node.log == ["hanging"], "the script hangs")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert node.left_behind() == []
    on_node.scripts(a="echo next")
    assert (await on_node.run()).error == ""


@pytest.mark.parametrize("first", ["", "#!/bin/bash\nset -m; "], ids=["plain", "job control"])
async def test_what_a_script_left_running_ends_with_it(on_node: Trial, node: SshNode, first: str) -> None:
    on_node.scripts(a=f"{first}sleep 1000 & echo started")
    assert (await on_node.run()).error == ""
    assert node.left_behind() == []


async def test_a_daemon_of_its_own_session_lives_on_and_does_not_hold_the_run_up(
    on_node: Trial, node: SshNode, tmp_path: Path
) -> None:
    """Even if it kept the output open."""
    up = '"$RACKWRIGHT_FOLDER/up"'
    begin = f"setsid sh -c 'echo up >{up}; exec sleep 1003' & until [ -s {up} ]; do :; done; echo started"
    async with trial(tmp_path / "daemon", KEY, node.target(), closing=CLOSING_SECONDS) as server:
        server.scripts(a=begin)
        assert (await server.run()).error == ""
    [(command, daemon)] = node.processes()
    assert command == "sleep 1003"
    daemon.kill()
    await until(lambda: node.processes() == [], "the daemon is gone")


async def test_a_connection_is_kept_and_used_again(on_node: Trial, node: SshNode) -> None:
    on_node.scripts(a="echo run")
    before = node.visits()
    for _ in range(5):
        assert (await on_node.run()).error == ""
    assert node.visits() == before + 1
    await on_node.jig.node_delete(JigNode(1, "n1.example"))
    assert (await on_node.run()).error == ""
    assert node.visits() == before + 2


async def test_a_role_without_scripts_fails_and_says_what_to_do(on_node: Trial, node: SshNode) -> None:
    before = node.visits()
    outcome = await on_node.run()
    assert outcome.answer is Answer.FAILED
    assert "Role test has no scripts" in outcome.error
    assert "script/roles/test" in outcome.error
    assert node.visits() == before


async def test_an_older_and_a_repeated_token_are_refused(on_node: Trial) -> None:
    on_node.scripts(a="echo ran")
    assert (await on_node.run(token=2**40)).error == ""
    older = await on_node.run(token=2**40 - 1)
    assert older.error.startswith(f"n1.example refused the run: its token {2**40 - 1} is older than {2**40}")
    same = await on_node.run(token=2**40)
    assert same.error.startswith("n1.example refused the run: it was given the same one before")
    assert on_node.log == ["ran"]


async def test_json_that_is_none_fails_the_run(on_node: Trial) -> None:
    on_node.scripts(a="write_attribute -j a/b '{oops'")
    assert "write_attribute -j a/b: '{oops' is not JSON" in (await on_node.run()).error


async def test_a_helper_used_wrongly_says_how_it_is_used(on_node: Trial) -> None:
    on_node.scripts(
        a="write_attribute || echo status $?; read_attribute no/such || echo status $?; get_keys x || echo status $?"
    )
    assert (await on_node.run({"x": 1})).error == ""
    assert on_node.log == [
        "usage: write_attribute [-j] PATH [VALUE]", "status 2",
        "read_attribute: there is no attribute no/such", "status 1",
        "get_keys: x is neither a map nor a list", "status 1",
    ]  # fmt: skip


async def test_a_node_that_rebooted_in_between_is_connected_to_again(own_node: SshNode, tmp_path: Path) -> None:
    async with trial(tmp_path / "scripts", KEY, own_node.target()) as server:
        server.scripts(a="echo ran")
        assert (await server.run()).error == ""
        own_node.shut_down()
        own_node.boot()
        assert (await server.run()).error == ""
        own_node.shut_down()
        outcome = await server.run()
        assert "cannot be reached over SSH" in outcome.error
        assert server.log == ["ran", "ran"]


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
async def test_a_changed_host_key_is_refused_and_reported(own_node: SshNode, tmp_path: Path, kind: str) -> None:
    async with trial(tmp_path / "scripts", KEY, own_node.target()) as server:
        server.scripts(a="echo ran")
        assert (await server.run()).error == ""
        own_node.shut_down()
        own_node.new_host_key(kind)
        own_node.boot()
        outcome = await server.run()
        assert "is pinned. Nothing was sent." in outcome.error
        assert len(server.differed) == 1
        assert server.log == ["ran"]
        server.target = own_node.target()
        assert (await server.run()).error == ""


async def test_an_unknown_host_key_is_refused_unless_first_use_is_allowed(own_node: SshNode, tmp_path: Path) -> None:
    async with trial(tmp_path / "scripts", KEY, own_node.target(host_key=None)) as server:
        server.scripts(a="echo ran")
        assert "none is known of it" in (await server.run()).error
        server.target = own_node.target(host_key=None, first_use=True)
        assert (await server.run()).error == ""
        [seen] = server.first_seen
        assert own_node.host_key.startswith(seen)
        server.target = own_node.target(host_key=seen)
        visits = own_node.visits()
        assert (await server.run()).error == ""
        assert own_node.visits() == visits


async def test_a_server_that_is_not_let_in_says_what_to_do(own_node: SshNode, tmp_path: Path) -> None:
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    async with trial(tmp_path / "scripts", stranger, own_node.target()) as server:
        server.scripts(a="echo ran")
        error = (await server.run()).error
        assert "Put the server's public key (rackwright key show) into the authorized keys of that user" in error


async def test_here_scripts_run_without_ssh(here: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_SECRET", "hidden")
    here.scripts(a='write_attribute said "$(read_attribute word)"; echo "<$SERVER_SECRET>"')
    outcome = await here.run({"word": "hello\n there"})
    assert outcome.error == ""
    assert outcome.wall == {"said": "hello\n there"}
    assert here.log == ["<>"]


async def test_here_a_failing_a_hanging_and_a_cancelled_script_leave_nothing(here: Trial) -> None:
    here.scripts(a="echo out; exit 3")
    assert "exit status 3. Last lines:\nout" in (await here.run()).error
    here.scripts(a="echo hanging; sleep 1000")
    here.deadline = 3600
    here.log.clear()
    running = asyncio.create_task(here.run())
    await until(lambda: here.log == ["hanging"], "the script hangs")
    pass_time(3600)
    assert "It was ended there." in (await running).error
    here.log.clear()
    running = asyncio.create_task(here.run())
    await until(lambda: here.log == ["hanging"], "the script hangs")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_script_with_an_unsafe_name_is_not_sent(here: Trial, tmp_path: Path) -> None:
    here.scripts(**{"a b": "echo ran"})
    (tmp_path / "work").mkdir()
    assert "has an unsafe name" in (await here.run()).error
    assert dataclasses.asdict(here.target.folders)["work"] == str(tmp_path / "work")
