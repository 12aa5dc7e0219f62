"""Scripts for iPXE: what they say, and that nothing gets into them that could say something else."""

import pytest

from rackwright.domain.errors import Invalid
from rackwright.provision.ipxe import render_ipxe_script
from rackwright.provision.network_boot import NetworkBoot, check_arguments, plan_network_boot

MAC = "52:54:00:12:34:56"
HOST = "10.77.0.1:8090"


def _script(bootenv: str, machine: str = MAC, host: str = HOST, arguments: str = "") -> str:
    return render_ipxe_script(plan_network_boot(bootenv, machine, host, arguments))


def test_a_machine_with_a_system_of_its_own_is_let_go() -> None:
    assert _script("local").splitlines() == ["#!ipxe", "# bootenv local", "exit 1"]


def test_discovery_boots_sledgehammer_and_is_told_where_the_server_is() -> None:
    text = _script("sledgehammer", arguments="console=ttyS0 quiet")
    assert f"http://{HOST}/files/sledgehammer/kernel initrd=initrd rackwright.server=http://{HOST}" in text
    assert "rackwright.bootenv=sledgehammer" in text
    assert " BOOTIF=${netX/mac} console=ttyS0 quiet ||" in text
    assert "secret" not in text


def test_an_installer_gets_its_secret_as_a_file_and_not_on_the_command_line() -> None:
    text = _script("debian-12-install")
    [kernel] = [line for line in text.splitlines() if line.startswith("kernel ")]
    assert "initrd=initrd initrd=secret" in kernel
    assert f"initrd --name secret http://{HOST}/boot/{MAC}/secret.cpio || goto failed" in text
    assert text.index("--name secret") < text.index("\nboot ||")


@pytest.mark.parametrize(
    "arguments",
    ["a\nb", "a\rb", 'a"b', "a'b", "a;b", "a$b", "a`b", "a|b", "a&&b", "${x}", "a  b", " a", "a ", "a\tb", "é"],
)
def test_kernel_arguments_with_characters_that_mean_something_are_refused(arguments: str) -> None:
    with pytest.raises(Invalid):
        check_arguments(arguments)
    with pytest.raises(Invalid):
        render_ipxe_script(NetworkBoot("sledgehammer", MAC, HOST, (arguments,)))


@pytest.mark.parametrize("host", ["a b", "a\nexit", "a/b", "a@b", "", "a:1:2", "${ip}", "[::1", "x" * 300])
def test_a_host_that_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(Invalid):
        _script("sledgehammer", host=host)


@pytest.mark.parametrize("machine", ["a b", "a\nexit", "", "../x", "${x}", "52:54:00:12:34:56 && exit"])
def test_a_machine_that_is_no_mac_or_uuid_is_refused(machine: str) -> None:
    with pytest.raises(Invalid):
        _script("debian-12-install", machine)


@pytest.mark.parametrize("bootenv", ["a b", "a\nexit", "", "../x", "A", "${x}"])
def test_a_boot_environment_that_is_no_name_is_refused(bootenv: str) -> None:
    with pytest.raises(Invalid):
        _script(bootenv)
