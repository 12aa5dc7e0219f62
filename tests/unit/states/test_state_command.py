"""`rackwright state` as a person or a machine uses it: output, JSON form and exit status."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE, wait_until

from rackwright.cli.commands import state
from rackwright.states.bundle import build_bundle

from .conftest import Write

GOOD = "a:\n  test.succeed_with_changes\nb:\n  test.nop:\n    - require:\n      - test: a\n"


@pytest.fixture(autouse=True)
def _stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command goes home before it runs anything; the tests do not."""
    monkeypatch.setattr("rackwright.states.running.execution.change_to_home_directory", lambda: None)


def test_json_has_the_stable_form(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert state.main(["apply", str(write(init=GOOD) / "init.sls"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    keys = ["id", "name", "function", "result", "changes", "comment", "start", "end", "outcome"]
    assert [list(state) for state in shown["states"]] == [keys, keys]
    assert [state["outcome"] for state in shown["states"]] == ["changed", "unchanged"]
    assert shown["states"][0]["start"] <= shown["states"][0]["end"] <= shown["states"][1]["start"]


def test_exit_status_tells_well_failed_and_refused_apart(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert state.main(["apply", str(write(init=GOOD))]) == 0
    assert state.main(["apply", str(write(init="a:\n  test.fail_without_changes\n"))]) == 1
    capsys.readouterr()
    assert state.main(["apply", str(write(init="a:\n  test.nopp\n")), "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "errors": ["init.sls:1: 'a': the module 'test' has no function 'nopp'; did you mean 'nop'?"]
    }


def test_a_refused_run_touches_nothing(write: Write, tmp_path: Path) -> None:
    text = f"a:\n  cmd.run:\n    - name: touch {tmp_path}/touched\nb:\n  test.nop:\n    - require:\n      - test: c\n"
    assert state.main(["apply", str(write(init=text))]) == 2
    assert not (tmp_path / "touched").exists()


def test_test_is_a_dry_run(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"a:\n  cmd.run:\n    - name: touch {tmp_path}/touched\n"
    assert state.main(["test", str(write(init=text))]) == 0
    assert "would change cmd.run a" in capsys.readouterr().out
    assert not (tmp_path / "touched").exists()


def test_progress_names_outcomes_and_reasons(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    text = "a:\n  test.fail_without_changes\nb:\n  test.nop:\n    - require:\n      - test: a\n"
    state.main(["apply", str(write(init=text))])
    assert capsys.readouterr().out.splitlines()[:4] == [
        "[1/2] failed    test.fail_without_changes a",
        "      Failure!",
        "[2/2] blocked   test.nop b",
        "      One or more requisite failed: init.a",
    ]


def test_show_gives_the_order_with_reasons(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    state.main(["show", str(write(init="b:\n  test.nop:\n    - require:\n      - test: a\na:\n  test.nop\n"))])
    assert capsys.readouterr().out.splitlines() == [
        "   1. test.nop a   init.sls:5",
        "   2. test.nop b   init.sls:2   <- require a",
    ]


def test_show_draws_the_graph(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    state.main(["show", "--dot", str(write(init=GOOD))])
    assert 'n0 -> n1 [label="require"];' in capsys.readouterr().out


def test_explain_names_what_order_cannot_do(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    state.main(
        ["explain", "--mode", "justdoit", str(write(init="a:\n  test.nop:\n    - order: last\nb:\n  test.nop\n"))]
    )
    shown = capsys.readouterr().out
    assert "`order` is not heeded in this mode: 'a'." in shown
    assert "2 units of work; 2 of them start at once." in shown


def test_doc_is_made_from_docstring_and_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert state.main(["doc", "cmd.run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("cmd.run\n  Run a command.\n")
    assert "  timeout (float)\n      Seconds after which the command is killed." in shown
    assert state.main(["doc", "cmd.rum"]) == 2
    assert "did you mean 'run'?" in capsys.readouterr().err


def test_variables_and_secrets_from_the_command_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(init="a:\n  cmd.run:\n    - name: echo {{ port + 1 }} {{ password }}\n")
    assert state.main(["apply", str(root), "--var", "port=80", "--secret", "password=pa55word", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["states"][0]["changes"]["stdout"] == "81 ********"
    assert "pa55word" not in out


def test_secrets_from_a_file_that_no_list_of_processes_shows(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(init="a:\n  cmd.run:\n    - name: echo {{ user }} {{ password }}\n")
    held = tmp_path / "secrets.yml"
    held.write_text("user: pa55user\npassword: pa55word\n")
    assert state.main(["apply", str(root), "--secret-file", str(held), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["states"][0]["changes"]["stdout"] == "******** ********"
    assert "pa55" not in out


def test_a_secret_is_not_shown_when_a_run_is_refused(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(init="a:\n  cmd.run:\n    - timeout: {{ password }}\n")
    assert state.main(["apply", str(root), "--secret", "password=pa55word"]) == 2
    shown = capsys.readouterr()
    assert "pa55word" not in shown.out + shown.err
    assert "********" in shown.err


def test_interrupted_leaves_no_process_behind(write: Write, tmp_path: Path) -> None:
    text = f"a:\n  cmd.run:\n    - name: echo $$ > {tmp_path}/pid; exec sleep {PATIENCE}\n"
    command = [sys.executable, "-m", "rackwright", "state", "apply", str(write(init=text))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().strip(), "the command runs")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


# The zipapp


def interpreters() -> list[str]:
    """This interpreter, and every other from the oldest a node may have that is at hand."""
    named = [shutil.which(f"python3.{minor}") for minor in range(9, 15)]
    working = [path for path in named if path and subprocess.run([path, "-V"], capture_output=True).returncode == 0]
    return [sys.executable, *working]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: Path(path).name)
def test_the_bundle_is_the_same_each_time_and_runs_a_job_alone(tmp_path: Path, python: str) -> None:
    bundle = build_bundle()
    assert bundle.digest == build_bundle().digest
    path = bundle.write(tmp_path)
    job = {
        "files": {
            "top.sls": "base:\n  '*':\n    - web\n",
            "web.sls": "{{ pillar.name }}:\n  cmd.run:\n    - name: echo {{ token }}\n",
        },
        "variables": {"name": "hello", "token": "t0p-5ecret"},
        "secrets": ["token"],
        "mode": "justdoit",
    }
    # -I -S: nothing of this environment is there to help.
    ran = subprocess.run(
        [python, "-I", "-S", str(path)], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [event["event"] for event in events] == ["planned", "start", "end", "report"]
    assert events[2]["state"]["changes"]["stdout"] == "********"
    assert events[2]["outputs"]["retcode"] == 0
    assert "t0p-5ecret" not in ran.stdout


def test_the_bundle_refuses_a_bad_job(tmp_path: Path) -> None:
    path = build_bundle().write(tmp_path)
    for job, message in (
        ("{", "not JSON"),
        ('{"files": {"../x": "y"}}', "outside the tree"),
        ('{"mode": "x"}', "mode"),
    ):
        ran = subprocess.run([sys.executable, "-I", str(path)], input=job, capture_output=True, text=True, check=False)
        assert ran.returncode == 2
        assert message in json.loads(ran.stdout.splitlines()[-1])["errors"][0]
