"""The domains that may be served, and the domain that a name is in."""

import pytest

from rackwright.domain.errors import Invalid
from rackwright.domain.networks.domains import check_domain, domain_of


@pytest.mark.parametrize("name", ["rack.example", "internal", "Corp.Example.COM", "lab.example."])
def test_a_domain_of_ones_own_may_be_served(name: str) -> None:
    assert check_domain(name) == name.lower().rstrip(".")


@pytest.mark.parametrize(
    "name",
    ["com", "org", "de", "arpa", "10.in-addr.arpa", "services.internal", "a.services.internal", "", "a b", "-a.b"],
)
def test_what_is_somebody_elses_or_no_domain_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        check_domain(name)


def test_a_name_lies_in_the_longest_domain_above_it() -> None:
    domains = {"example", "rack.example"}
    assert domain_of("n1.rack.example", domains) == "rack.example"
    assert domain_of("n1.other.example", domains) == "example"
    assert domain_of("rack.example", domains) == "example"
    assert domain_of("evil.com", domains) is None
    assert domain_of("notrack.example.com", domains) is None
