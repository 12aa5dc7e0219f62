"""A system for one kind of processor is never put on a machine with another."""

from dataclasses import replace

import pytest
from tests.unit.domain.installs.storage.scene import request

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.processor import check_processor
from rackwright.domain.installs.request import InstallRequest, SystemImage
from rackwright.domain.installs.resolve import resolve_install

AMD64, ARM64 = SystemImage("debian-12"), SystemImage("mine", architecture="arm64")


def on(kernel_name: str | None, image: SystemImage | None) -> InstallRequest:
    """An install on a machine of which `uname -m` says this."""
    asked = request("flat")
    cpu: JsonObject = {"cores": 4} if kernel_name is None else {"architecture": kernel_name}
    return replace(asked, facts={**asked.facts, "cpu": cpu}, image=image)


@pytest.mark.parametrize(
    ("machine", "image"), [("x86_64", AMD64), ("x86_64", None), (None, AMD64), (None, ARM64), (None, None)]
)
def test_nothing_is_in_the_way_of_a_system_for_the_machine_or_while_that_is_not_known(
    machine: str | None, image: SystemImage | None
) -> None:
    assert check_processor(on(machine, image)) == ()
    assert resolve_install(on(machine, image)).wiped


@pytest.mark.parametrize(
    ("machine", "image", "reasons"),
    [
        ("aarch64", AMD64, ["of the kind 'arm64', and debian-12 is for amd64", "be installed on arm64 machines yet"]),
        ("aarch64", ARM64, ["nothing can be installed on arm64 machines yet"]),
        ("aarch64", None, ["nothing can be installed on arm64 machines yet"]),
        ("x86_64", ARM64, ["the machine has a processor of the kind 'amd64', and mine is for arm64"]),
        ("riscv64", AMD64, ["of the kind 'riscv64', and debian-12 is for amd64", "installed on riscv64 machines yet"]),
        ("z" * 5000, AMD64, ["debian-12 is for amd64"]),
    ],
)
def test_a_system_that_would_not_start_is_refused_and_no_disk_is_named_for_it(
    machine: str, image: SystemImage | None, reasons: list[str]
) -> None:
    resolved = resolve_install(on(machine, image))
    [problem] = resolved.problems
    assert (problem.attrib, problem.waits) == ("provisioner-target-os", False), "no time mends it"
    assert len(str(problem)) < 500
    for reason in reasons:
        assert reason in problem.reason
    assert resolved.wiped == ()
    assert "storage" not in resolved.config
