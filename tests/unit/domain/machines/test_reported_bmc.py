"""What a machine says of its BMC: SMBIOS structures as firmware writes them, and all that only looks like one."""

import base64
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.catalogue import Json
from rackwright.domain.machines.reported_bmc import propose_bmc, read_reported_controller

UUID = bytes(range(16))
USB_DEVICE = b"\x02\x6b\x1d\x12\x34\x04\x00abc"
"""A descriptor of the interface's own device: its type, then what that type has."""


def redfish_record(address: str, port: int = 443) -> bytes:
    is_ipv6 = ":" in address
    packed = IPv6Address(address).packed if is_ipv6 else IPv4Address(address).packed.ljust(16, b"\0")
    data = UUID + b"\x01\x01" + bytes(32) + b"\x01" + bytes([2 if is_ipv6 else 1]) + packed + bytes(16)
    data += port.to_bytes(2, "little") + bytes(4) + b"\x00"
    return bytes([0x04, len(data)]) + data


def host_interface(*records: bytes, device: bytes = USB_DEVICE) -> str:
    body = bytes([0x40, len(device)]) + device + bytes([len(records)]) + b"".join(records)
    structure = bytes([42, 4 + len(body)]) + b"\x2a\x00" + body + b"\0\0"
    return base64.b64encode(structure).decode()


def test_ipmi_says_where_the_bmc_is() -> None:
    reported: Json = {"ipmi": True, "address": "192.0.2.7", "mac": "52:54:00:AA:BB:CC", "host_interfaces": []}
    assert read_reported_controller(reported) == {"kind": "ipmi", "address": "192.0.2.7", "mac": "52:54:00:aa:bb:cc"}


def test_a_bmc_with_ipv6_alone() -> None:
    reported: Json = {"ipmi": True, "address": "0.0.0.0", "address6": "2001:db8::7"}
    assert read_reported_controller(reported) == {"kind": "ipmi", "address": "2001:db8::7"}


@pytest.mark.parametrize(
    ("record", "address"),
    [
        (redfish_record("192.0.2.7"), "192.0.2.7"),
        (redfish_record("192.0.2.7", 8443), "192.0.2.7:8443"),
        (redfish_record("2001:db8::7"), "[2001:db8::7]"),
        (redfish_record("2001:db8::7", 8443), "[2001:db8::7]:8443"),
    ],
)
def test_a_host_interface_names_its_redfish_service(record: bytes, address: str) -> None:
    reported: Json = {"ipmi": False, "host_interfaces": [host_interface(b"\x02\x01\x00", record)]}
    assert read_reported_controller(reported) == {"kind": "redfish", "address": address}


def test_a_service_within_the_machine_is_reached_at_the_address_that_ipmi_knows() -> None:
    inside = host_interface(redfish_record("169.254.0.17"))
    reported: Json = {"ipmi": True, "address": "192.0.2.7", "host_interfaces": [inside]}
    assert read_reported_controller(reported) == {"kind": "redfish", "address": "192.0.2.7"}
    assert read_reported_controller({"host_interfaces": [inside]}) == {"kind": "redfish"}


def test_a_bmc_without_an_address_is_known_to_be_there() -> None:
    assert read_reported_controller({"ipmi": True, "address": ""}) == {"kind": "ipmi"}


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "224.0.0.1", "fe80::1", "169.254.1.1", "example.com", "", 7])
def test_no_address_of_a_network(address: Json) -> None:
    assert read_reported_controller({"ipmi": True, "address": address}) == {"kind": "ipmi"}


def test_a_machine_without_a_bmc() -> None:
    assert read_reported_controller({"ipmi": False, "address": "", "host_interfaces": []}) == {}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_nothing_is_taken_from_what_has_another_form(reported: Json) -> None:
    assert read_reported_controller(reported) == {}
    assert read_reported_controller({"host_interfaces": reported, "mac": reported, "address6": reported}).keys() <= {
        "kind",
        "address",
    }


@given(st.binary(max_size=320))
def test_a_structure_of_any_bytes_is_read_or_left(noise: bytes) -> None:
    structure = base64.b64encode(bytes([42, min(len(noise) + 4, 255)]) + b"\0\0" + noise).decode()
    bmc = read_reported_controller({"host_interfaces": [structure] * 100})
    assert bmc.keys() <= {"kind", "address"}


@pytest.mark.parametrize("cut", range(1, 110))
def test_a_structure_that_ends_too_early(cut: int) -> None:
    whole = base64.b64decode(host_interface(redfish_record("192.0.2.7")))
    shortened = bytes([42, min(whole[1], cut)]) + whole[2:cut]
    bmc = read_reported_controller({"host_interfaces": [base64.b64encode(shortened).decode()]})
    assert bmc in ({}, {"kind": "redfish"})


def test_a_person_may_take_what_is_reported() -> None:
    proposed = propose_bmc({"kind": "ipmi", "address": "192.0.2.7"}, None)
    assert proposed is not None
    assert (proposed.kind, proposed.address) == ("ipmi", "192.0.2.7")
    assert propose_bmc({"kind": "redfish", "address": "[2001:db8::7]:8443"}, {"username": "ops"}) is not None


@pytest.mark.parametrize(
    ("reported", "chosen"),
    [
        ({"kind": "ipmi", "address": "192.0.2.7"}, {"address": "192.0.2.9"}),
        ({"kind": "ipmi"}, None),
        ({"kind": "simulated", "address": "http://127.0.0.1:9/machines/1"}, None),
        ({"kind": "redfish", "address": "bmc.example"}, None),
        ({"kind": "redfish", "address": "192.0.2.7@bmc.example"}, None),
        ({"kind": "redfish", "address": "127.0.0.1"}, None),
        ({"kind": "redfish", "address": "[::1]:443"}, None),
        ({"kind": "redfish", "address": "192.0.2.7/redfish"}, None),
        ({"kind": ["redfish"], "address": "192.0.2.7"}, None),
        ("192.0.2.7", None),
        (None, None),
    ],
)
def test_nothing_is_proposed(reported: Json, chosen: Json) -> None:
    assert propose_bmc(reported, chosen) is None
