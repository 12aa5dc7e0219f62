"""The files that machines boot: which TFTP serves, what is logged of others, and how all of them are checked."""

from functools import partial
from pathlib import Path

import pytest
from tests.support.machines.tftp_requests import Sent, request
from tests.support.waiting import PATIENCE

from rackwright.domain.architectures import Architecture
from rackwright.jigs.boot_server import BootTrouble, tftp_answers
from rackwright.provision import tftp
from rackwright.provision.images.shelf import Shelf
from rackwright.provision.images.sledgehammer_parts import loaders
from rackwright.provision.tftp import serving_tftp
from rackwright.rare_warning import RareWarning
from rackwright.server.provisioning import boot_files, explain_missing_loader, make_boot_check
from rackwright.server.settings import Options

HOST = "127.0.0.1"
CONTENT = bytes(range(256))


def test_requests_for_an_image_that_is_not_there_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    warn = RareWarning()
    for _ in range(1000):
        assert boot_files(Shelf(tmp_path), "10.77.0.1:8091", warn) == {}
    assert len(caplog.records) == 1


def test_grub_is_told_by_tftp_where_the_machine_interface_is(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with shelf.making("sledgehammer", {}) as folder:
        for name in ("shimx64.efi", "kernel"):
            (folder / name).write_bytes(CONTENT)
    files = boot_files(shelf, "10.77.0.1:8091", RareWarning())
    assert files.keys() == {"shimx64.efi", "grub/grub.cfg"}, "the kernel comes by HTTP"
    script = files["grub/grub.cfg"]
    assert isinstance(script, bytes)
    assert script.startswith(b'source "(http,10.77.0.1:8091)/boot/$net_default_mac/grub.cfg?cpu=$grub_cpu"\n')


def _put_image(shelf: Shelf, name: str, *files: str) -> None:
    with shelf.making(name, {}) as folder:
        for file in files:
            (folder / file).write_bytes(CONTENT)


def test_the_loaders_of_each_kind_of_machine_are_served_that_has_an_image(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    _put_image(shelf, "sledgehammer", "undionly.kpxe", "shimx64.efi", "kernel")
    amd64 = {"undionly.kpxe", "shimx64.efi", "grub/grub.cfg"}
    assert boot_files(shelf, "10.77.0.1:8091", RareWarning()).keys() == amd64
    _put_image(shelf, "sledgehammer-arm64", "shimaa64.efi", "grubaa64.efi", "kernel")
    assert boot_files(shelf, "10.77.0.1:8091", RareWarning()).keys() == amd64 | {"shimaa64.efi", "grubaa64.efi"}
    shelf.delete("sledgehammer")
    assert "shimx64.efi" not in boot_files(shelf, "10.77.0.1:8091", RareWarning())


async def test_the_log_says_what_to_make_for_machines_that_find_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf, warn = Shelf(tmp_path), RareWarning()
    _put_image(shelf, "sledgehammer", "shimx64.efi")
    server = tftp.TftpServer(
        lambda: boot_files(shelf, "10.77.0.1:8091", warn), "127.0.0.1", partial(explain_missing_loader, shelf, warn)
    )
    server.connection_made(Sent())
    for _ in range(100):
        server.datagram_received(request("shimaa64.efi"), ("192.0.2.1", 1000))
    server.datagram_received(request("what-nobody-has"), ("192.0.2.1", 1000))
    assert len(caplog.records) == 1
    assert "arm64 machines find nothing to boot here" in caplog.text
    assert "rackwright image build sledgehammer --architecture arm64" in caplog.text


async def test_more_files_can_be_asked_for_one_after_the_other_than_one_address_may_fetch_at_once(
    tmp_path: Path,
) -> None:
    """As the check does of all that machines boot: it fetches none of them to the end."""
    (tmp_path / "loader").write_bytes(CONTENT)
    names = [f"loader-{number}" for number in range(3 * tftp.MOST_PER_ADDRESS)]
    async with serving_tftp(lambda: dict.fromkeys(names, tmp_path / "loader"), HOST, 0) as port:
        for name in names:
            assert await tftp_answers(HOST, port, name, patience=PATIENCE)
        assert not await tftp_answers(HOST, port, "what-is-not-there", patience=PATIENCE)


async def test_the_check_of_what_machines_find_names_each_file_and_says_for_which_machines_there_is_nothing(
    tmp_path: Path,
) -> None:
    shelf = Shelf(tmp_path)
    files = partial(boot_files, shelf, "10.77.0.1:8091", RareWarning())
    async with serving_tftp(files, HOST, 0) as port:
        check = make_boot_check(shelf, Options(tmp_path, provision_address=[HOST], tftp_port=port))
        with pytest.raises(BootTrouble, match="Make it: rackwright image build sledgehammer"):
            await check()
        _put_image(shelf, "sledgehammer", *loaders(Architecture.AMD64))
        *served, missing = await check()
        assert [line.partition(":")[0] for line in served] == [
            f"sledgehammer/{name}" for name in sorted(loaders(Architecture.AMD64))
        ]
        assert missing.startswith("arm64 machines find nothing to boot here")
        _put_image(shelf, "sledgehammer-arm64", *loaders(Architecture.ARM64))
        assert "sledgehammer-arm64/shimaa64.efi" in {line.partition(":")[0] for line in await check()}
        _put_image(shelf, "sledgehammer-arm64", "shimaa64.efi")
        with pytest.raises(BootTrouble, match=r"does not send grubaa64\.efi"):
            await check()
