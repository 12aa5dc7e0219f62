"""Scripts for GRUB: what they say, and that nothing gets into them that could say something else."""

import base64

import pytest

from rackwright.domain.architectures import Architecture
from rackwright.domain.errors import Invalid
from rackwright.provision.grub import render_first_grub_script, render_grub_script
from rackwright.provision.network_boot import NetworkBoot, plan_network_boot
from rackwright.store.machines.keys import disk_mark

MAC = "52:54:00:12:34:56"
HOST = "10.77.0.1:8091"
MARK = "0123456789abcdef0123456789abcdef"


def _script(
    bootenv: str,
    machine: str = MAC,
    host: str = HOST,
    arguments: str = "",
    mark: str = "",
    architecture: Architecture = Architecture.AMD64,
) -> str:
    return render_grub_script(plan_network_boot(bootenv, machine, host, arguments, mark, architecture))


def test_the_first_script_asks_for_that_of_the_machine_by_its_mac_and_says_on_what_it_runs() -> None:
    first = render_first_grub_script(HOST).splitlines()
    assert first[0] == f'source "(http,{HOST})/boot/$net_default_mac/grub.cfg?cpu=$grub_cpu"'
    assert [line.strip() for line in first[-2:]] == ["reboot", "}"], "without an answer it tries again"


@pytest.mark.parametrize("bootenv", ["sledgehammer", "debian-12-install", "local"])
def test_nothing_is_started_while_the_script_is_open(bootenv: str) -> None:
    """GRUB would leave its connection open, and could not open it anew after a reset."""
    _, function, *body, end = _script(bootenv).splitlines()
    assert (function, end) == ("function start_machine {", "}")
    assert "boot" in {line.strip() for line in body}
    source, timeout, menu, called = render_first_grub_script(HOST).splitlines()[:4]
    assert source.startswith("source ")
    assert (timeout, menu.split()[0], called.strip()) == ("set timeout=0", "menuentry", "start_machine")


def test_discovery_boots_sledgehammer_and_is_told_where_the_server_is() -> None:
    text = _script("sledgehammer", arguments="console=ttyS0,115200 quiet")
    [kernel] = [line for line in text.splitlines() if "linux " in line]
    assert kernel == (
        f"if linux '(http,{HOST})/files/sledgehammer/kernel' 'rackwright.server=http://{HOST}'"
        " 'rackwright.bootenv=sledgehammer' \"BOOTIF=$net_default_mac\" 'console=ttyS0,115200' 'quiet'; then"
    )
    assert f"if initrd '(http,{HOST})/files/sledgehammer/initrd'; then" in text
    assert "secret" not in text


def test_an_installer_gets_its_secret_as_a_file_named_once_and_not_on_the_command_line() -> None:
    text = _script("debian-12-install")
    assert text.count("secret") == 1, "a second fetch would end the install"
    assert f"'(http,{HOST})/files/sledgehammer/initrd' '(http,{HOST})/boot/{MAC}/secret.cpio'; then" in text


def test_a_machine_with_a_system_of_its_own_starts_the_disk_of_its_last_install_before_any_other() -> None:
    text = _script("local", mark=MARK)
    own, other = text.index(f"--file '/EFI/rackwright/{MARK}'"), text.index("--file '/EFI/BOOT/BOOTX64.EFI'")
    assert own < other < text.index("exit")
    assert text.count("chainloader '/EFI/BOOT/BOOTX64.EFI'") == 2
    assert "rackwright/" not in _script("local"), "a machine that nobody installed has no mark"


def test_a_machine_with_arm64_gets_its_own_kernel_and_starts_its_own_loader() -> None:
    text = _script("sledgehammer", architecture=Architecture.ARM64)
    assert f"if linux '(http,{HOST})/files/sledgehammer-arm64/kernel' " in text
    assert f"if initrd '(http,{HOST})/files/sledgehammer-arm64/initrd'; then" in text
    assert "/files/sledgehammer/" not in text
    local = _script("local", mark=MARK, architecture=Architecture.ARM64)
    assert local.count("chainloader '/EFI/BOOT/BOOTAA64.EFI'") == 2
    assert "X64" not in local


@pytest.mark.parametrize(
    ("architecture", "command"),
    [
        (Architecture.AMD64, "rackwright image build sledgehammer"),
        (Architecture.ARM64, "rackwright image build sledgehammer --architecture arm64"),
    ],
)
def test_a_machine_that_finds_no_kernel_shows_which_command_makes_it(architecture: Architecture, command: str) -> None:
    last, end = _script("sledgehammer", architecture=architecture).splitlines()[-2:]
    assert (last, end) == (f"echo 'What {architecture} machines boot is made by: {command}'", "}")


def test_the_mark_is_what_the_installer_makes_of_its_key() -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    # sha256sum of the 32 bytes, cut to 32 characters, as agent/bootloader_uefi does it
    assert disk_mark(key) == "630dcd2966c4336691125448bbb25b4f"
    assert disk_mark(key) in _script("local", mark=disk_mark(key))


def test_a_server_may_have_an_ipv6_address() -> None:
    text = _script("sledgehammer", host="[fd77::1]:8091")
    assert "'(http,[fd77::1]:8091)/files/sledgehammer/kernel' 'rackwright.server=http://[fd77::1]:8091'" in text


@pytest.mark.parametrize(
    "argument",
    ["a\nb", 'a"b', "a'b", "a;b", "$root", "a`b", "a|b", "a&b", "a b", "", "a#b", "a{b", "a*b", "a\\b", "é", "a>b"],
)
def test_kernel_arguments_with_characters_that_mean_something_are_refused(argument: str) -> None:
    with pytest.raises(Invalid):
        render_grub_script(NetworkBoot("sledgehammer", MAC, HOST, (argument,)))


@pytest.mark.parametrize(
    "host", ["a b", "a\nexit", "a/b", "a)b", "", "a:1:2", "$root", "[::1", "a'b", 'a"b', "a;b", "x" * 300]
)
def test_a_host_that_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(Invalid):
        _script("sledgehammer", host=host)
    with pytest.raises(Invalid):
        render_first_grub_script(host)


@pytest.mark.parametrize("machine", ["a b", "a\nexit", "", "../x", "$x", "52:54:00:12:34:56'; exit; '"])
def test_a_machine_that_is_no_mac_or_uuid_is_refused(machine: str) -> None:
    with pytest.raises(Invalid):
        _script("debian-12-install", machine)


@pytest.mark.parametrize("bootenv", ["a b", "a\nexit", "", "../x", "A", "$x", "a'b"])
def test_a_boot_environment_that_is_no_name_is_refused(bootenv: str) -> None:
    with pytest.raises(Invalid):
        _script(bootenv)


@pytest.mark.parametrize("mark", ["x" * 32, "../../" + MARK, MARK + "'", MARK.upper(), MARK[:-1]])
def test_a_mark_that_is_none_is_refused(mark: str) -> None:
    with pytest.raises(Invalid):
        _script("local", mark=mark)
