"""Live views on a terminal, seen through tmux as a person sees them; and barclamps from nothing to ACTIVE."""

import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.servers.command_line import Cli, served
from tests.support.servers.server_processes import RACKWRIGHT
from tests.support.waiting import wait_until


class Terminal:
    """A tmux session of its own server, so that nobody else's is touched."""

    def __init__(self, socket: str) -> None:
        self._tmux = ["tmux", "-L", socket, "-f", "/dev/null"]

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        words = " ".join(map(shlex.quote, ["env", *(f"{key}={value}" for key, value in environment.items()), *command]))
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "160", "-y", "45", f"{words}; echo ended $?; cat"], check=True
        )

    def screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def press(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def wait_for(self, *texts: str) -> str:
        """Return the first screen that shows all of the texts."""

        def shown() -> str | None:
            screen = self.screen()
            return screen if all(text in screen for text in texts) else None

        return wait_until(shown, f"{' and '.join(texts)} on the screen") or ""

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@contextmanager
def terminal(cli: Cli, *words: str) -> Iterator[Terminal]:
    opened = Terminal(f"rackwright-{uuid.uuid4().hex[:12]}")
    environment = cli.environment | {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}
    del environment["COLUMNS"]
    try:
        opened.start([str(RACKWRIGHT), *words], environment)
        yield opened
    finally:
        opened.end()


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with served(tmp_path_factory.mktemp("server"), "--test-barclamp", "--tick", "1") as cli:
        cli.ok("node", "create", "n1.rack.example", "--alive")
        yield cli


def test_anneal_watch_follows_the_work_to_its_end(cli: Cli) -> None:
    cli.ok("deployment", "create", "web")
    cli.ok("node", "bind", "n1.rack.example", "test-child", "web")
    cli.ok("deployment", "commit", "web", "--yes")
    with terminal(cli, "anneal", "watch", "--deployment", "web") as seen:
        screen = seen.wait_for("ended 0")
        assert "deployment web:" in screen
        assert "ACTIVE" in screen


def test_top_shows_the_whole_system_and_ends_on_request(cli: Cli) -> None:
    with terminal(cli, "top") as seen:
        seen.wait_for("deployments", "noderoles", "system")
        seen.press("C-c")
        seen.wait_for("ended 0")


def test_a_log_is_followed_to_the_end_of_its_run(cli: Cli) -> None:
    run = cli.json("run", "list", "-f", "state=succeeded", "--limit", "1")[0]["id"]
    assert f"Run {run}: succeeded." in cli.ok("run", "log", str(run), "--follow").out


def test_events_are_told_as_they_happen(cli: Cli) -> None:
    cli.ok("deployment", "create", "earlier")
    with terminal(cli, "event", "watch", "--kind", "deployment.created") as seen:
        seen.wait_for("earlier")
        cli.ok("deployment", "create", "later")
        seen.wait_for("later")


def test_a_new_barclamp_is_right_imported_and_runs_to_active(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "greeter"
    assert "barclamp.yml" in cli.ok("barclamp", "new", str(folder)).out
    assert cli.json("barclamp", "check", str(folder))["roles"] == ["greeter-base", "greeter-server"]
    cli.ok("barclamp", "import", str(folder))
    assert cli.json("role", "show", "greeter-server")["requires"] == ["greeter-base"]
    again = cli("barclamp", "new", str(folder))
    assert again.code == 4


def test_import_says_which_deployments_are_behind_and_the_plan_shows_why(cli: Cli, tmp_path: Path) -> None:
    def write(app: str) -> str:
        roles = f"[{{name: below, jig: noop}}, {{name: above, jig: noop{app}}}]"
        (tmp_path / "barclamp.yml").write_text(f"name: stack\nroles: {roles}\n")
        return str(tmp_path)

    assert cli.json("barclamp", "import", write(""))["behind"] == []
    cli.ok("node", "create", "n9.rack.example", "--alive")
    cli.ok("deployment", "create", "stacked")
    cli.ok("node", "bind", "n9.rack.example", "above", "stacked")
    cli.ok("deployment", "commit", "stacked", "--yes")
    warning = cli.ok("barclamp", "import", write(", requires: [below]")).err
    assert "Deployment stacked is behind" in warning
    assert cli.json("deployment", "show", "stacked")["behind"] is True
    for command in ("rackwright deployment propose stacked", "rackwright deployment plan stacked"):
        assert command in warning
        shown = cli.ok(*command.split()[1:]).out
    assert "+ below on n9.rack.example" in shown
    assert "& above on n9.rack.example  (stands now on below on n9.rack.example)" in shown
    cli.ok("deployment", "commit", "stacked", "--yes")
    assert cli.json("barclamp", "import", str(tmp_path))["behind"] == []
    assert cli.json("deployment", "show", "stacked")["behind"] is False


def test_the_shell_completes_nouns_verbs_and_live_names(cli: Cli) -> None:
    def complete(*words: str) -> str:
        environment = (
            os.environ
            | cli.environment
            | {
                "_RACKWRIGHT_COMPLETE": "complete_bash",
                "COMP_WORDS": " ".join(["rackwright", *words]),
                "COMP_CWORD": str(len(words)),
            }
        )
        return subprocess.run([RACKWRIGHT], env=environment, capture_output=True, text=True, check=False).stdout

    assert complete("no").split() == ["node", "noderole"]
    assert complete("node", "re").split() == ["reach", "rename", "reinstall"]
    # It waits two seconds for the server and then is silent; a person presses the key again.
    wait_until(lambda: complete("node", "show", "n1").split() == ["n1.rack.example"], "the name is completed")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(cli: Cli, shell: str) -> None:
    assert "_RACKWRIGHT_COMPLETE" in cli.ok("completion", shell).out
