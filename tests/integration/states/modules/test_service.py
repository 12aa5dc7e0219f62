"""`service` against real processes: plain ones, System V scripts, and units of a systemd that is not running."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.state_functions import Run
from tests.support.waiting import PATIENCE, wait_until

from rackwright.states.module import StateError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="services are root's")

DAEMON = """
import os, signal, sys, time
log = sys.argv[1]
def say(word):
    with open(log, "a") as file:
        file.write(f"{word} {os.getpid()}\\n")
def stop(*_):
    say("stop")
    sys.exit(0)
signal.signal(signal.SIGHUP, lambda *_: say("reload"))
signal.signal(signal.SIGTERM, stop)
say("start")
while True:
    signal.pause()
"""


class Daemon:
    """A real daemon that writes down what happens to it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log, self.pidfile = folder / "log", folder / "pid"
        self.script = folder / "daemon.py"
        self.script.write_text(DAEMON)
        self.arguments: dict[str, Any] = {
            "name": name,
            "command": [sys.executable, str(self.script), str(self.log)],
            "pidfile": str(self.pidfile),
            "timeout": PATIENCE,
        }

    def words(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def wait_for(self, *words: str) -> None:
        wait_until(lambda: self.words() == list(words), lambda: f"{' '.join(words)}, but {' '.join(self.words())}")

    def pid(self) -> int:
        return int(self.pidfile.read_text().split()[0])

    def kill(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                ours = str(self.script).encode() in (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended while we looked
            if ours:
                os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    found = Daemon(tmp_path, f"rackwright-test-{os.getpid()}")
    yield found
    found.kill()


def test_a_process_is_started_once_and_outlives_the_run(daemon: Daemon) -> None:
    run = Run()
    assert run.apply("service.running", **daemon.arguments).changes == {daemon.arguments["name"]: True}
    daemon.wait_for("start")
    assert run.apply("service.running", **daemon.arguments).changes == {}
    assert os.getsid(daemon.pid()) != os.getsid(0)


def test_a_dry_run_starts_nothing(daemon: Daemon) -> None:
    assert Run().check("service.running", **daemon.arguments).changes
    assert not daemon.pidfile.exists()


def test_a_killed_process_is_started_again(daemon: Daemon) -> None:
    run = Run()
    run.apply("service.running", **daemon.arguments)
    daemon.wait_for("start")
    os.kill(daemon.pid(), signal.SIGKILL)
    wait_until(lambda: run.check("service.running", **daemon.arguments).changes, "it is seen that it was killed")
    assert run.apply("service.running", **daemon.arguments).changes
    daemon.wait_for("start", "start")


def test_a_pidfile_whose_number_is_now_another_process_is_not_believed(daemon: Daemon) -> None:
    daemon.pidfile.write_text(f"{os.getpid()}\n1\n")
    Run().apply("service.dead", **daemon.arguments)
    Run().apply("service.running", **daemon.arguments)
    assert daemon.pid() != os.getpid()


def test_dead_stops_the_process(daemon: Daemon) -> None:
    run = Run()
    run.apply("service.running", **daemon.arguments)
    daemon.wait_for("start")
    assert run.apply("service.dead", **daemon.arguments).changes == {daemon.arguments["name"]: True}
    assert daemon.words() == ["start", "stop"]
    assert run.apply("service.dead", **daemon.arguments).changes == {}


def test_watch_restarts_or_reloads(daemon: Daemon) -> None:
    run = Run()
    run.apply("service.running", **daemon.arguments)
    daemon.wait_for("start")
    first = daemon.pid()
    assert "reloaded" in run.watch("service.running", reload=True, **daemon.arguments).comment
    daemon.wait_for("start", "reload")
    assert daemon.pid() == first
    assert "restarted" in run.watch("service.running", **daemon.arguments).comment
    daemon.wait_for("start", "reload", "stop", "start")
    assert daemon.pid() != first


def test_a_command_that_ends_at_once_fails_and_says_how_to_look(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackwright.states.support.services.process.SURVIVE_SECONDS", PATIENCE)
    for command in ("false", "/nonexistent/daemon --flag"):
        with pytest.raises(StateError, match="ended as soon as it was started; run it by hand"):
            Run().apply("service.running", **{**daemon.arguments, "command": command})


SCRIPT = """#!/bin/sh
### BEGIN INIT INFO
# Provides:          {name}
# Required-Start:
# Required-Stop:
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: made by a test
### END INIT INFO
RUN="start-stop-daemon --pidfile {pidfile}"
case "$1" in
    start) $RUN --start --make-pidfile --background --exec {python} -- {script} {log} ;;
    stop) $RUN --stop --retry TERM/{patience:.0f}/KILL/5 --remove-pidfile ;;
    restart) "$0" stop; "$0" start ;;
    reload) $RUN --stop --signal HUP ;;
    status) $RUN --status ;;
    *) exit 3 ;;
esac
"""


@pytest.fixture
def sysv(daemon: Daemon) -> Iterator[Daemon]:
    name = daemon.arguments["name"]
    script = Path("/etc/init.d") / name
    try:
        python = os.path.realpath(sys.executable)
        text = SCRIPT.format(
            name=name, pidfile=daemon.pidfile, python=python, script=daemon.script, log=daemon.log, patience=PATIENCE
        )
        script.write_text(text)
        script.chmod(0o755)
        yield daemon
    finally:
        script.unlink()
        subprocess.run(["update-rc.d", name, "remove"], check=True)


def test_system_v_script_is_started_enabled_reloaded_and_stopped(sysv: Daemon) -> None:
    run = Run()
    name = sysv.arguments["name"]
    common = {"name": name, "provider": "sysv"}
    patient = {**common, "timeout": PATIENCE}
    assert run.apply("service.running", enable=True, **patient).changes == {"enabled": True, name: True}
    sysv.wait_for("start")
    assert list(Path("/etc").glob(f"rc2.d/S??{name}"))
    run.watch("service.running", reload=True, **patient)
    sysv.wait_for("start", "reload")
    run.watch("service.running", **patient)
    sysv.wait_for("start", "reload", "stop", "start")
    assert run.apply("service.dead", enable=False, **patient).changes == {"enabled": False, name: True}
    assert not list(Path("/etc").glob(f"rc2.d/S??{name}"))
    assert run.apply("service.enabled", **common).changes == {name: True}
    assert run.apply("service.disabled", **common).changes == {name: False}


def test_sig_finds_a_service_by_its_command_line(sysv: Daemon) -> None:
    common = {"name": sysv.arguments["name"], "provider": "sysv", "sig": str(sysv.script), "timeout": PATIENCE}
    assert Run().check("service.running", **common).changes
    Run().apply("service.running", **common)
    sysv.wait_for("start")
    assert Run().check("service.running", **common).changes == {}


def test_an_unknown_service_fails_a_real_run_but_not_a_dry_one() -> None:
    with pytest.raises(StateError, match="there is no service rackwright-nosuch"):
        Run().apply("service.running", name="rackwright-nosuch", provider="sysv")
    assert Run().check("service.running", name="rackwright-nosuch", provider="sysv").changes
    assert Run().apply("service.dead", name="rackwright-nosuch", provider="sysv").changes == {}


def test_systemd_units_are_enabled_in_an_image(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "app.service").write_text("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
    (units / "fixed.service").write_text("[Service]\nExecStart=/bin/true\n")
    link = units / "multi-user.target.wants/app.service"
    run = Run()
    assert run.apply("service.enabled", name="app", root=str(tmp_path)).changes == {"app": True}
    assert link.is_symlink()
    assert run.apply("service.disabled", name="app", root=str(tmp_path)).changes == {"app": False}
    assert not link.is_symlink()
    with pytest.raises(StateError, match="nothing to enable"):
        run.apply("service.enabled", name="fixed", root=str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "--now"}, "no service name"),
        ({"name": "x", "command": "y", "provider": "systemd"}, "for a plain process"),
        ({"name": "x", "command": "y", "enable": True}, "cannot be enabled"),
        ({"name": "x", "reload": True, "full_restart": True}, "choose one"),
        ({"name": "x", "pidfile": "y"}, "no absolute path"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        Run().apply("service.running", **arguments)
