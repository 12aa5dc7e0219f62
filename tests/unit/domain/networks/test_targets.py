"""The addresses that the server may call because somebody named them, and those it may not."""

from ipaddress import ip_address, ip_network

import pytest

from rackwright.domain.errors import Invalid
from rackwright.domain.networks.call_targets import call_refusal, parse_target

PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1",
    "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2002:c0a8:101::1", "2001:0:0:0:0:0:80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_of_the_public_internet_are_refused(address: str) -> None:
    assert "webhook_allow" in (call_refusal(ip_address(address), []) or "")


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_called(address: str) -> None:
    assert call_refusal(ip_address(address), []) is None


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1"])
def test_a_network_that_is_allowed_is_called_and_no_other(address: str) -> None:
    allowed = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]
    assert call_refusal(ip_address(address), allowed) is None
    assert call_refusal(ip_address("192.168.1.1"), allowed) is not None


@pytest.mark.parametrize(
    ("url", "authority", "called"),
    [
        ("https://chat.example/x?y=1", "chat.example", "https://192.0.2.7:443/x?y=1"),
        ("http://Chat.Example:8080", "chat.example:8080", "http://192.0.2.7:8080/"),
        ("https://[2001:db8::1]:443/x", "[2001:db8::1]", "https://192.0.2.7:443/x"),
    ],
)
def test_a_url_is_called_at_an_address_under_its_own_name(url: str, authority: str, called: str) -> None:
    target = parse_target(url)
    assert target.authority == authority
    assert target.at(ip_address("192.0.2.7")) == called


@pytest.mark.parametrize(
    "url",
    [
        "ftp://chat.example", "chat.example", "https://", "https:///x", "https://user:secret@chat.example",
        "https://a b",
        "https://chat.example/#x", "https://chat.example:0", "https://chat.example:99999", "https://[::1", "http://0x7f.1",
        "http://2130706433", "http://[fe80::1%25eth0]/", "https://chat.example/\r\nHost: x", "https://ch\u00e4t.example",
        "https://-x.example", "file:///etc/passwd", "https://127.1",
    ],
)  # fmt: skip
def test_what_is_no_url_to_call_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_target(url)
    assert refused.value.pointer == "/url"
