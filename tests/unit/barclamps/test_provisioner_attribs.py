"""The choices of people for an install: no value that would break out of a boot file gets past the schema."""

import pytest

from rackwright.barclamps.loader import built_in
from rackwright.domain.attributes import check_role_data
from rackwright.domain.catalogue import Catalogue
from rackwright.domain.errors import Invalid

INSTALL = "provisioner-os-install"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.of(built_in())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel_arguments", "quiet\nlabel other"),
        ("kernel_arguments", "quiet\n"),
        ("kernel_arguments", 'a"b'),
        ("kernel_arguments", "a'b"),
        ("kernel_arguments", "a;reboot"),
        ("kernel_arguments", "$(reboot)"),
        ("kernel_arguments", "a  b"),
        ("target_os", "debian-12\nexit"),
        ("target_os", "../x"),
        ("disk", "vda; reboot"),
        ("disk", "a\n"),
        ("disk", "/dev/vda"),
    ],
)
def test_what_would_break_out_of_a_boot_file_is_refused_where_it_is_written(
    catalogue: Catalogue, name: str, value: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        check_role_data(catalogue, INSTALL, {"provisioner": {name: value}})
    assert refusal.value.status == 422
    assert refusal.value.pointer == f"/provisioner/{name}"


def test_what_a_boot_file_can_hold_is_taken(catalogue: Catalogue) -> None:
    chosen = {"kernel_arguments": "console=ttyS0,115200 net.ifnames=0 quiet", "disk": "virtio-LAB0001"}
    check_role_data(catalogue, INSTALL, {"provisioner": {**chosen, "target_os": "debian-12"}})
    check_role_data(catalogue, INSTALL, {"provisioner": {"kernel_arguments": ""}})
