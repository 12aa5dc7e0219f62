"""Children of this process: real ones, which get ready, die, refuse to end, and leave things behind."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.child_process import ChildProcess, ask_to_end, kill_group, last_line, output_tail
from rackwright.parent_death import DIES_WITH_US

STUBBORN = 'trap "" TERM; echo ready; while :; do sleep 0.1; done'


def runs(pid: int) -> bool:
    """Whether there is such a process, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_child_is_waited_for_until_it_is_ready(tmp_path: Path) -> None:
    output = tmp_path / "output"
    child = await ChildProcess.start(["sh", "-c", "sleep 0.1; echo ready; exec sleep 3600"], output)

    async def ready() -> bool:
        return output_tail(output) == "ready"

    try:
        async with asyncio.timeout(PATIENCE):
            assert await child.wait_ready(ready)
        assert child.running
    finally:
        await child.kill()
    assert not runs(child.pid)


async def test_a_child_that_ends_before_it_is_ready_is_noticed_and_its_last_words_are_kept(tmp_path: Path) -> None:
    output = tmp_path / "output"
    child = await ChildProcess.start(["sh", "-c", "echo first; echo no room >&2; exit 3"], output)

    async def ready() -> bool:
        return False

    async with asyncio.timeout(PATIENCE):
        assert not await child.wait_ready(ready)
    assert await child.wait() == 3
    assert (output_tail(output), last_line(output)) == ("first\nno room", "no room")


async def test_a_command_that_is_not_there_says_so_in_its_output(tmp_path: Path) -> None:
    child = await ChildProcess.start(["no-such-program-of-ours"], tmp_path / "output")
    assert await child.wait() == 127
    assert "no-such-program-of-ours" in last_line(tmp_path / "output")


async def test_output_is_added_to_or_replaces_that_of_the_child_before(tmp_path: Path) -> None:
    output = tmp_path / "output"
    for word, append in (("one", True), ("two", True), ("three", False)):
        child = await ChildProcess.start(["echo", word], output, append=append)
        await child.wait()
        assert output.read_text() == {"one": "one\n", "two": "one\ntwo\n", "three": "three\n"}[word]


MOST = 20_000
CHATTY = f"import itertools\nfor line in itertools.count():\n    print(line, 'x' * {MOST // 100}, flush=True)\n"


def sizes(folder: Path) -> list[int]:
    return [file.stat().st_size for file in folder.iterdir()]


async def test_a_child_that_never_stops_talking_fills_no_disk_and_its_last_words_are_kept(tmp_path: Path) -> None:
    output = tmp_path / "output"
    child = await ChildProcess.start([sys.executable, "-c", CHATTY], output, most_output=MOST)

    def kept() -> int:
        files = sizes(tmp_path)
        assert max(files, default=0) <= MOST
        assert len(files) <= 2
        return sum(files)

    def last_number() -> int:
        kept()
        return max((int(line.split()[0]) for line in output_tail(output).splitlines()[1:-1]), default=0)

    try:
        await until(lambda: last_number() > 1000, "it has said ten times what is kept")
        assert kept() > MOST // 2
    finally:
        await child.kill()
    assert len(output_tail(output)) > 1900, "of the file that was just begun, and of the one before"


async def test_the_output_of_a_child_is_there_when_it_has_ended_however_much_it_is(tmp_path: Path) -> None:
    output = tmp_path / "output"
    for number in range(3):
        command = ["sh", "-c", f"head -c 300000 /dev/zero; echo; echo that was {number}; exit 4"]
        child = await ChildProcess.start(command, output, append=False, most_output=200_000)
        assert await child.wait() == 4
        assert last_line(output) == f"that was {number}"
        assert output.stat().st_size < 200_000
        assert sum(sizes(tmp_path)) == 300_000 + len("\nthat was 0\n")


async def test_what_a_child_left_in_the_background_is_still_heard_after_its_end(tmp_path: Path) -> None:
    output = tmp_path / "output"
    go_on = tmp_path / "go_on"
    waiting = f"(until [ -e {go_on} ]; do sleep 0.05; done; echo late) & echo early"
    child = await ChildProcess.start(["sh", "-c", waiting], output)
    try:
        assert await child.wait() == 0
        assert output_tail(output) == "early"
    finally:
        go_on.touch()
    await until(lambda: output_tail(output) == "early\nlate", "what is left behind is heard")


async def test_a_child_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "output"
    child = await ChildProcess.start(["sh", "-c", STUBBORN], output)

    async def ready() -> bool:
        return bool(output_tail(output))

    async with asyncio.timeout(PATIENCE):
        assert await child.wait_ready(ready)
        await child.end(grace=0.1)
        assert await child.wait() == -signal.SIGKILL
        await child.end(grace=0.1)  # a second time: nothing to do


async def test_a_child_that_ends_when_asked_is_not_killed(tmp_path: Path) -> None:
    child = await ChildProcess.start(["sleep", "3600"], tmp_path / "output")
    await child.end(grace=PATIENCE)
    assert await child.wait() == -signal.SIGTERM


async def test_asking_says_whether_a_process_ended() -> None:
    stubborn = await asyncio.create_subprocess_exec("sh", "-c", STUBBORN, stdout=asyncio.subprocess.PIPE)
    assert stubborn.stdout is not None
    await stubborn.stdout.readline()
    assert not await ask_to_end(stubborn, 0.05)
    stubborn.kill()
    await stubborn.wait()
    assert await ask_to_end(stubborn, 0.05)


async def test_killing_a_group_takes_what_a_process_left_behind() -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", "sleep 3600 >/dev/null & echo $!"), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    output, _ = await process.communicate()
    left = int(output)
    assert runs(left)
    assert await kill_group(process) == 0
    await until(lambda: not runs(left), "what it left behind ends, too")


def test_the_tail_of_a_long_output_is_short_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert (output_tail(output), last_line(output)) == ("", "")
    output.write_bytes(b"x" * 5000 + b"\n\xff end\n\n")
    assert output_tail(output, 7) == "\N{REPLACEMENT CHARACTER} end"
    assert len(output_tail(output)) < 2000


IN_CHILD = """
import os, sys, time
from rackwright.parent_death import die_with
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(3600)
"""


WITHIN = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {IN_CHILD!r}, str(os.getpid())])"
WITHOUT = f"import subprocess; subprocess.run([*{DIES_WITH_US!r}, 'sh', '-c', 'echo $$; exec sleep 3600'])"


@pytest.mark.parametrize("script", [WITHIN, WITHOUT], ids=["from within", "from without"])
def test_a_child_dies_with_its_parent(script: str) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert runs(child)
        parent.kill()
        parent.wait()
    wait_until(lambda: not runs(child), "the child ends with its parent")


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", IN_CHILD, "1"], capture_output=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
