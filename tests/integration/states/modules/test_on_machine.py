"""States applied by the command itself on a whole machine: a real systemd, a real PackageKit."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.package_repositories import Deb, apt_repository
from tests.support.states.throwaway_machine import Machine, machine
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and overlays are root's")

A = "rackwright-test-a"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return apt_repository(tmp_path_factory.mktemp("machine") / "repository", Deb(A))


@pytest.fixture(scope="module")
def host(repository: Path) -> Iterator[Machine]:
    with machine(repository) as started:
        yield started


def apply(host: Machine, text: str) -> dict[str, dict[str, Any]]:
    """Apply states on the machine; the states of the result by ID."""
    host.run("mkdir", "-p", "/srv/states")
    host.write("/srv/states/init.sls", text)
    script = "from rackwright.cli.main import main; main()"
    command = [sys.executable, "-c", script, "state", "apply", "/srv/states", "--json"]
    said = host.run("sh", "-c", '"$@" || test $? = 1', "sh", *command)
    return {state["id"]: state for state in json.loads(said)["states"]}


UNIT = """
unit:
  file.managed:
    - name: /etc/systemd/system/{name}.service
    - contents: |
        [Service]
        Environment=GENERATION={generation}
        StandardOutput=append:/run/{name}.log
        ExecStart=/bin/sh -c 'trap "echo reload" HUP; echo up; while :; do sleep 0.1; done'
        ExecReload=/bin/kill -HUP $MAINPID
        [Install]
        WantedBy=multi-user.target
service:
  service.running:
    - name: {name}
    - enable: true
    - reload: {reload}
    - watch:
      - file: unit
"""


def said(host: Machine, name: str) -> str:
    """What the service of that name has written."""
    return host.run("sh", "-c", f"cat /run/{name}.log || true")


def prop(host: Machine, name: str, wanted: str) -> str:
    return host.run("systemctl", "show", f"--property={wanted}", "--value", name).strip()


def test_systemd_service_is_started_enabled_and_restarted_with_its_new_unit(host: Machine) -> None:
    name = "rackwright-one"
    first = apply(host, UNIT.format(name=name, generation=1, reload="false"))
    assert first["service"]["changes"] == {name: True, "enabled": True}
    assert (prop(host, name, "ActiveState"), prop(host, name, "UnitFileState")) == ("active", "enabled")
    process = prop(host, name, "MainPID")

    again = apply(host, UNIT.format(name=name, generation=1, reload="false"))
    assert {state["outcome"] for state in again.values()} == {"unchanged"}
    assert prop(host, name, "MainPID") == process

    changed = apply(host, UNIT.format(name=name, generation=2, reload="false"))
    assert "restarted" in changed["service"]["comment"]
    assert prop(host, name, "MainPID") != process
    assert prop(host, name, "Environment") == "GENERATION=2", "systemd was told to read the changed unit"

    stopped = apply(host, f"service:\n  service.dead:\n    - name: {name}\n    - enable: false\n")
    assert stopped["service"]["changes"] == {name: True, "enabled": False}
    assert (prop(host, name, "ActiveState"), prop(host, name, "UnitFileState")) == ("inactive", "disabled")


def test_systemd_service_reloads_instead_if_asked(host: Machine) -> None:
    name = "rackwright-two"
    apply(host, UNIT.format(name=name, generation=1, reload="true"))
    wait_until(lambda: "up" in said(host, name), "the service listens to signals")
    process = prop(host, name, "MainPID")
    changed = apply(host, UNIT.format(name=name, generation=2, reload="true"))
    assert "reloaded" in changed["service"]["comment"]
    assert prop(host, name, "MainPID") == process
    wait_until(lambda: "reload" in said(host, name), "the service is reloaded")


def test_systemd_service_that_falls_over_or_is_masked_or_unknown_fails_with_the_reason(host: Machine) -> None:
    host.write("/etc/systemd/system/rackwright-bad.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
    host.run("systemctl", "mask", "rackwright-masked.service")
    host.run("systemctl", "daemon-reload")
    names = ("bad", "masked", "nosuch")
    states = apply(host, "".join(f"{name}:\n  service.running:\n    - name: rackwright-{name}\n" for name in names))
    assert {state["outcome"] for state in states.values()} == {"failed"}
    assert "starting rackwright-bad" in states["bad"]["comment"]
    assert "unmask: true" in states["masked"]["comment"]
    assert "there is no service rackwright-nosuch" in states["nosuch"]["comment"]


MODULE = """
from rackwright.states.module import Argument, Check, Result, StateFunction

FUNCTIONS = (
    StateFunction(
        "hello",
        "Greets.",
        (Argument("name", required=True),),
        lambda arguments, context: Check({"greeting": arguments["name"]}, "would greet"),
        lambda arguments, check, context: Result(True, check.changes, "greeted"),
    ),
)
"""


def test_a_module_of_the_tree_is_applied_once_its_signer_is_trusted(host: Machine) -> None:
    host.run("mkdir", "-p", "/srv/states/_modules", "/etc/rackwright")
    host.write("/srv/states/_modules/greet.py", MODULE)
    host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/rackwright-key")
    script = "from rackwright.cli.main import main; main()"
    sign = ["module", "sign", "/srv/states/_modules/greet.py", "--version", "1", "--key", "/root/rackwright-key"]
    host.run(sys.executable, "-c", script, *sign)
    host.write("/srv/states/init.sls", "world:\n  greet.hello: []\n")
    applied = host.command(sys.executable, "-c", script, "state", "apply", "/srv/states", "--json")
    refused = subprocess.run(applied, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "no key is trusted here" in json.loads(refused.stdout)["errors"][0]
    host.run("sh", "-c", "echo alice $(cat /root/rackwright-key.pub) > /etc/rackwright/module-signers")
    assert json.loads(host.run(*applied[len(host.command()) :]))["states"][0]["changes"] == {"greeting": "world"}
    host.run("rm", "-r", "/srv/states")


def test_packagekit_installs_and_removes(host: Machine, repository: Path) -> None:
    host.run("sh", "-c", "rm -rf /etc/apt/sources.list.d/* && mkdir -p /run/dbus")
    host.run("cp", "--recursive", str(repository), "/srv/repository")
    host.write("/etc/apt/sources.list", "deb [trusted=yes] file:/srv/repository ./\n")
    # Without a default route PackageKit calls itself offline and reads no lists, not even local ones.
    host.run("ip", "link", "add", "one", "type", "veth", "peer", "name", "two")
    host.run("ip", "address", "add", "192.0.2.2/24", "dev", "one")
    for end in ("one", "two"):
        host.run("ip", "link", "set", end, "up")
    host.run("ip", "route", "add", "default", "via", "192.0.2.1")
    host.run("dbus-daemon", "--system", "--fork", "--nopidfile")  # which starts PackageKit when it is first asked for
    state = f"{A}:\n  pkg.{{}}:\n    - provider: packagekit\n"
    installed = apply(host, state.format("installed"))[A]
    assert installed["changes"] == {A: {"old": "", "new": "1.0"}}, installed["comment"]
    assert "install ok installed" in host.run("dpkg-query", "-W", "-f", "${Status}", A)
    assert apply(host, state.format("removed"))[A]["changes"] == {A: {"old": "1.0", "new": ""}}
