"""A jig is one file: found, and named in barclamps, from what that file says, and from nothing else."""

from pathlib import Path

import pytest
from tests.support.one_file_kind import told_by_a_process

import rackwright.jigs
from rackwright.jigs.registry import jig_kinds, kinds_that_run_files, registered_jigs
from rackwright.registration import BadRegistration

PACKAGE = "rackwright.jigs"

BELL = '''
"""Rings a bell."""

from typing import Self

from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts
from rackwright.jigs.ports import FindTarget
from rackwright.reach.run_log import Log


class BellJig(Jig):
    kind = "bell"
    runs_files = True
    role_folder = "bells"
    role_folder_lacks = "no bells: hang some here"

    def __init__(self, targets: FindTarget) -> None:
        self.targets = targets

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.targets)

    async def run(self, run: Run, log: Log) -> Outcome:
        return Outcome.success()
'''

EVERYWHERE = """
from pathlib import Path
from unittest.mock import MagicMock
from rackwright.barclamps.loader import load_folder
from rackwright.domain.errors import BarclampInvalid
from rackwright.jigs.ports import JigPorts
from rackwright.jigs.registry import jig_kinds, kinds_that_run_files, make_jigs

barclamp = Path(sys.argv[1]) / "tower"
(barclamp / "bells" / "ringing").mkdir(parents=True)
(barclamp / "barclamp.yml").write_text("name: tower\\njigs: [{name: bell}]\\nroles: [{name: ringing, jig: bell}]\\n")
checked = load_folder(barclamp).jigs[0].kind
(barclamp / "bells" / "ringing").rmdir()
try:
    refused = load_folder(barclamp).name
except BarclampInvalid as error:
    refused = error.reason
ports = MagicMock(lab_client=None, spec=list(JigPorts.__dataclass_fields__))
jigs = make_jigs(ports)
print(json.dumps({
    "kinds": "bell" in jig_kinds(),
    "files": "bell" in kinds_that_run_files(),
    "checked": checked,
    "refused": refused,
    "given": jigs["bell"].targets is ports.targets,
    "lab": "lab" in jigs,
}))
"""

LIGHT = """
from rackwright.jigs.registry import jig_kinds
jig_kinds()
print(json.dumps(sorted({"asyncssh", "httpx"} & {name.partition(".")[0] for name in sys.modules})))
"""


def test_a_new_jig_is_one_file_that_registry_and_barclamps_know(tmp_path: Path) -> None:
    (tmp_path / "bell.py").write_text(BELL)
    assert told_by_a_process(PACKAGE, tmp_path, EVERYWHERE) == {
        "kinds": True,
        "files": True,
        "checked": "bell",
        "refused": "Role 'ringing' has the jig 'bell' and no bells: hang some here.",
        "given": True,
        "lab": False,
    }


def test_kinds_are_listed_without_loading_what_jigs_use(tmp_path: Path) -> None:
    assert told_by_a_process(PACKAGE, tmp_path, LIGHT) == []


def test_the_jigs_are_these_and_each_is_what_was_read_of_it() -> None:
    for registration in registered_jigs():
        assert getattr(registration.load(), "kind") == registration.kind  # noqa: B009  # all that is known is a type
    assert jig_kinds() == (
        *("boot-server", "dhcp-database", "dhcp-server", "dns-database", "dns-server", "lab", "mesh", "network"),
        *("node-network", "noop", "os-install", "role-provided", "script", "simulate", "ssh-access", "state"),
    )
    assert kinds_that_run_files() == {"script", "state", "role-provided"}


def test_two_files_with_one_kind_are_an_error_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rackwright.jigs, "__path__", [*rackwright.jigs.__path__, str(tmp_path)])
    (tmp_path / "bell.py").write_text(BELL.replace('"bell"', '"noop"'))
    with pytest.raises(BadRegistration, match=r"noop\.NoopJig and .*bell\.BellJig both declare the kind 'noop'"):
        jig_kinds()
