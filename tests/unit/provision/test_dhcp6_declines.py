"""How often machines may decline addresses of DHCPv6 before they are not heard for a while."""

from ipaddress import IPv6Address

import pytest

from rackwright.domain.networks.dhcp import DECLINED_SECONDS
from rackwright.provision.dhcp6_relay import MOST_DECLINES, MOST_DECLINES_PER_MACHINE, Declines

STRANGER, MACHINE = IPv6Address("fe80::66"), IPv6Address("fe80::1")


def test_a_machine_is_heard_a_few_times_and_others_still_are(caplog: pytest.LogCaptureFixture) -> None:
    declines = Declines()
    assert sum(declines.allow(STRANGER, 0.0) for _ in range(1000)) == MOST_DECLINES_PER_MACHINE
    assert declines.allow(MACHINE, 0.0)
    assert len(caplog.records) == 1, "it is told of, once"


def test_under_a_thousand_names_a_stranger_is_heard_so_often_and_no_more() -> None:
    declines = Declines()
    assert sum(declines.allow(STRANGER + number, 0.0) for number in range(1000)) == MOST_DECLINES


def test_after_the_time_that_an_address_is_kept_aside_all_are_heard_again() -> None:
    declines = Declines()
    for _ in range(MOST_DECLINES_PER_MACHINE):
        declines.allow(STRANGER, 0.0)
    assert not declines.allow(STRANGER, DECLINED_SECONDS - 1.0)
    assert declines.allow(STRANGER, float(DECLINED_SECONDS))
