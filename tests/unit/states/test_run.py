"""What a run does beyond requisites: commands, parallel states, failures of modules, limits, dry runs."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.processes import is_alive
from tests.support.waiting import PATIENCE, wait_until

from rackwright.states.catalogue import Catalogue
from rackwright.states.module import Arguments, Check, Command, Context, Finished, Result, StateFunction
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import locate_tree
from rackwright.states.running.execution import PlanExecution
from rackwright.states.running.loop import KEPT_BYTES, CapturedOutput

from .conftest import Apply, Write


def test_a_module_that_raises_fails_its_state_only(write: Write) -> None:
    def explode(arguments: Arguments, context: Context) -> Check:
        raise ZeroDivisionError("by zero")

    def nothing(arguments: Arguments, check: Check, context: Context) -> Result:
        return Result(True, {}, "")

    boom = StateFunction("now", "", (), explode, nothing)
    tree, sls = locate_tree(
        write(init="a:\n  boom.now\nb:\n  test.nop:\n    - require:\n      - boom: a\nc:\n  test.nop\n")
    )
    for mode in ("ansible", "justdoit", "genius"):
        report = PlanExecution(build_plan(tree, sls, {}, {}, Catalogue({"boom": [boom]})), mode).execute()
        outcomes = {record.id: record.outcome.value for record in report.records}
        assert outcomes == {"a": "failed", "b": "blocked", "c": "unchanged"}
        comment = next(record.comment for record in report.records if record.id == "a")
        assert comment.startswith("An exception occurred in this state: ZeroDivisionError: by zero (test_run.py:")


def test_templates_of_files_see_the_facts_that_the_state_files_see(apply: Apply, write: Write, tmp_path: Path) -> None:
    words = (
        "{{ grains.id }} {{ node.get('os', 'none') }} {{ salt['grains.get']('id') }} {{ pillar.word }} {{ vars.word }}"
    )
    write(**{"motd.txt": f"{words}\n"})
    files = {
        "from-template": "    - source: motd.txt\n    - template: jinja\n",
        "from-sls": f"    - contents: {words}\n",
    }
    states = [f"{tmp_path}/{name}:\n  file.managed:\n{arguments}" for name, arguments in files.items()]
    apply("".join(states), variables={"word": "hello"})
    seen = {name: (tmp_path / name).read_text() for name in files}
    assert seen == dict.fromkeys(files, "node-1 none node-1 hello hello\n")


def test_an_extension_cannot_take_the_place_of_a_built_in_module() -> None:
    def other(arguments: Arguments, context: Context) -> Check:
        return Check({}, "not the real one")

    fake = StateFunction("nop", "", (), other, lambda arguments, check, context: Result(True, {}, ""))
    found, _ = Catalogue({"test": [fake]}).find("test", "nop")
    assert found is not None
    assert found.check is not other


def meeting(folder: Path, option: str = "") -> str:
    """Two commands of which each waits for a file that the other makes: one after another would never end."""
    text = ""
    for mine, theirs in (("one", "two"), ("two", "one")):
        wait = waiting_shell(f"[ -e {folder / theirs} ]")
        text += f"{mine}:\n  cmd.run:\n    - name: touch {folder / mine}; {wait}\n{option}"
    return text


def waiting_shell(condition: str) -> str:
    """Shell commands that wait for a condition, and fail if it does not come about."""
    return f"i=0; until {condition}; do sleep 0.02; i=$((i+1)); [ $i -lt {PATIENCE / 0.02:.0f} ] || exit 1; done"


def test_justdoit_runs_commands_side_by_side(apply: Apply, tmp_path: Path) -> None:
    assert not apply(meeting(tmp_path), "justdoit").failed


def test_parallel_states_run_side_by_side_in_ansible_mode_too(apply: Apply, tmp_path: Path) -> None:
    assert not apply(meeting(tmp_path, "    - parallel: True\n")).failed


def test_a_cap_limits_how_many_run_at_once(write: Write, tmp_path: Path) -> None:
    log = tmp_path / "log"
    meet = waiting_shell(f"[ $(grep -c + {log}) -ge 3 ]")  # none of the first three ends before all of them run
    text = "".join(f"c{n}:\n  cmd.run:\n    - name: echo + >> {log}; {meet}; echo - >> {log}\n" for n in range(12))
    tree, sls = locate_tree(write(init=text))
    assert not PlanExecution(build_plan(tree, sls), "justdoit", parallel=3).execute().failed
    running = most = 0
    for line in log.read_text().split():
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert most == 3


def test_more_commands_than_descriptors_wait_for_each_other(apply: Apply) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, hard))
    try:
        report = apply("".join(f"c{n}:\n  cmd.run:\n    - name: echo {n}\n" for n in range(60)), "justdoit")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert report.summary()["changed"] == 60


def test_a_command_is_killed_with_its_children_when_its_time_is_up(
    apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is up once its child runs, which it tells by a word that wakes the engine.

    The child waits until the engine has set the deadline, or that would lie an hour behind the end of the time.
    """
    child, timed = tmp_path / "child", tmp_path / "timed"

    def monotonic() -> float:
        late = child.exists()
        timed.touch()
        return time.monotonic() + (3600 if late else 0)

    monkeypatch.setattr("rackwright.states.running.loop.time", SimpleNamespace(monotonic=monotonic))
    told = f"until [ -e {timed} ]; do sleep 0.01; done; echo $! > {child}.new; mv {child}.new {child}; echo started"
    name = f"sleep {PATIENCE} & {told}; wait"
    report = apply(f"a:\n  cmd.run:\n    - name: {name}\n    - timeout: 3600\n")
    assert report.records[0].outcome.value == "failed"
    assert "was killed after 3600 seconds" in report.records[0].comment
    wait_until(lambda: not is_alive(int(child.read_text())), "the child is killed too")


def test_a_child_left_in_the_background_is_not_waited_for(apply: Apply, tmp_path: Path) -> None:
    report = apply(f"a:\n  cmd.run:\n    - name: sleep {PATIENCE} & echo $! > {tmp_path}/child; echo done\n")
    child = int((tmp_path / "child").read_text())
    assert is_alive(child)
    os.kill(child, 9)
    assert report.records[0].changes["stdout"] == "done"


def test_much_output_on_both_streams_is_kept_whole(apply: Apply) -> None:
    report = apply("a:\n  cmd.run:\n    - name: seq 60000; seq 60000 >&2\n")
    expected = "\n".join(str(n) for n in range(1, 60001))
    assert report.records[0].changes["stdout"] == expected
    assert report.records[0].changes["stderr"] == expected


def test_command_surroundings(apply: Apply, tmp_path: Path) -> None:
    report = apply(
        f"a:\n  cmd.run:\n    - name: pwd; echo $X; umask; cat\n    - cwd: {tmp_path}\n    - env:\n      - X: 5\n"
        "    - umask: '027'\n    - stdin: given\n"
    )
    assert report.records[0].changes["stdout"] == f"{tmp_path}\n5\n0027\ngiven"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_command_runs_as_another_user(apply: Apply) -> None:
    report = apply("a:\n  cmd.run:\n    - name: id -un; echo $USER\n    - runas: nobody\n    - cwd: /\n")
    assert report.records[0].changes["stdout"] == "nobody\nnobody"


def test_an_unknown_user_or_program_fails_the_state_with_the_reason(apply: Apply) -> None:
    report = apply(
        "a:\n  cmd.run:\n    - name: id\n    - runas: nobody-at-all\n"
        "b:\n  cmd.run:\n    - name: id\n    - shell: /nonexistent/shell\n"
    )
    assert "there is no user 'nobody-at-all'" in report.records[0].comment
    assert "cannot start /nonexistent/shell" in report.records[1].comment


def test_a_script_of_the_tree_runs_with_its_own_interpreter(write: Write) -> None:
    folder = write(**{"hello.py": "#!/usr/bin/env python3\nimport sys\nprint('hi', *sys.argv[1:])\n"})
    tree, sls = locate_tree(write(init="s:\n  cmd.script:\n    - name: salt://hello.py 'a b' c\n"))
    assert folder == tree.root
    assert PlanExecution(build_plan(tree, sls)).execute().records[0].changes["stdout"] == "hi a b c"


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("echo working; echo 'changed=yes comment=did'", True),
        ("echo 'changed=no'", False),
        ("""echo '{"changed": true}'""", True),
        ("""echo '{"changed": false}'""", False),
    ],
)
def test_a_stateful_command_says_itself_whether_it_changed_anything(apply: Apply, command: str, changed: bool) -> None:
    report = apply(f"a:\n  cmd.run:\n    - stateful: True\n    - name: |\n        {command}\n")
    assert (report.records[0].outcome.value == "changed") == changed


def test_a_retried_state_runs_until_it_succeeds(apply: Apply, tmp_path: Path) -> None:
    report = apply(
        f"a:\n  cmd.run:\n    - name: echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3\n"
        "    - retry:\n        attempts: 5\n        interval: 0\n"
    )
    assert report.records[0].result is True
    assert (tmp_path / "tries").read_text() == "x\n" * 3


def test_a_dry_run_changes_nothing(apply: Apply, tmp_path: Path) -> None:
    text = (
        f"a:\n  cmd.run:\n    - name: touch {tmp_path}/made\n"
        f"b:\n  cmd.wait:\n    - name: touch {tmp_path}/reacted\n    - watch:\n      - cmd: a\n"
        f"c:\n  cmd.wait:\n    - name: touch {tmp_path}/heard\n    - listen:\n      - cmd: a\n"
    )
    for mode in ("ansible", "justdoit", "genius"):
        report = apply(text, mode, test=True)
        assert not report.failed
        assert {record.id: record.result for record in report.records} == {
            "a": None,
            "b": None,
            "c": True,
            "listener_c": None,
        }
    assert not list(tmp_path.glob("*ed")) + list(tmp_path.glob("made"))


def test_functions_that_wait_do_not_hold_each_other_up_in_justdoit(write: Write) -> None:
    meeting = threading.Barrier(4, timeout=PATIENCE)

    def check(arguments: Arguments, context: Context) -> Check:
        return Check({"met": True}, "")

    def meet(arguments: Arguments, check: Check, context: Context) -> Result:
        meeting.wait()
        return Result(True, check.changes, "")

    friend = StateFunction("meet", "", (), check, meet)
    tree, sls = locate_tree(write(init="".join(f"f{n}:\n  friend.meet\n" for n in range(4))))
    assert (
        not PlanExecution(build_plan(tree, sls, {}, {}, Catalogue({"friend": [friend]})), "justdoit").execute().failed
    )


def test_a_command_without_settle_fails_its_state(write: Write) -> None:
    def check(arguments: Arguments, context: Context) -> Check:
        return Check({"x": 1}, "")

    wrong = StateFunction("go", "", (), check, lambda arguments, check, context: Command(("true",)))
    right = StateFunction(
        "ok",
        "",
        (),
        check,
        lambda arguments, check, context: Command(("true",)),
        settle=lambda arguments, finished: Result(isinstance(finished, Finished), {"x": 1}, ""),
    )
    tree, sls = locate_tree(write(init="a:\n  ext.go\nb:\n  ext.ok\n"))
    report = PlanExecution(build_plan(tree, sls, {}, {}, Catalogue({"ext": [wrong, right]}))).execute()
    assert [record.outcome.value for record in report.records] == ["failed", "changed"]


def test_a_chain_longer_than_the_recursion_limit_is_planned_and_run(write: Write) -> None:
    text = "s0:\n  test.nop\n" + "".join(
        f"s{n}:\n  test.nop:\n    - require:\n      - test: s{n - 1}\n" for n in range(1, 2000)
    )
    tree, sls = locate_tree(write(init=text))
    for mode in ("ansible", "justdoit"):
        assert PlanExecution(build_plan(tree, sls), mode).execute().summary()["unchanged"] == 2000


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_of_a_long_output_the_ends_are_kept_and_the_middle_is_marked(write: Write, stream: str) -> None:
    """However long: what is kept of 20 MB is no more than of any other that is too long."""
    where = "" if stream == "stdout" else " >&2"
    said = f"{{ echo first; yes | head -c 20000000; echo last; }}{where}"
    tree, sls = locate_tree(write(init=f"noisy:\n  cmd.run:\n    - name: '{said}'\n"))
    [record] = PlanExecution(build_plan(tree, sls, {}, {}), "ansible").execute().records
    output = record.changes[stream]
    assert record.outcome.value == "changed"
    assert output.startswith("first\ny\ny\n")
    assert output.endswith("y\ny\nlast")
    left_out = 20_000_000 + len("first\nlast\n") - 2 * KEPT_BYTES
    assert output.count(f"\n[{left_out} bytes of output are left out here]\n") == 1
    assert len(output) < 2 * KEPT_BYTES + 100


@pytest.mark.parametrize("size", [0, 1, KEPT_BYTES, 2 * KEPT_BYTES, 2 * KEPT_BYTES + 1, 5 * KEPT_BYTES])
@pytest.mark.parametrize("piece", [7777, 3 * KEPT_BYTES])
def test_an_output_is_whole_up_to_what_is_kept(size: int, piece: int) -> None:
    said = bytes(97 + place % 26 for place in range(size))
    captured = CapturedOutput()
    for start in range(0, size, piece):
        captured.extend(said[start : start + piece])
    mark = f"\n[{size - 2 * KEPT_BYTES} bytes of output are left out here]\n" if size > 2 * KEPT_BYTES else ""
    assert captured.text() == said[:KEPT_BYTES].decode() + mark + said[KEPT_BYTES:][-KEPT_BYTES:].decode()
