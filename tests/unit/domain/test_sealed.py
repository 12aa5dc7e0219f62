"""Seals are found in values from outside."""

import pytest

from rackwright.domain.sealed import carries_seal

SEAL = {"$sealed": "1:AAAA", "fingerprint": "x"}


@pytest.mark.parametrize("value", [SEAL, {"$sealed": 1}, [[SEAL]], {"a": [1, {"b": SEAL}]}, ("a", SEAL)])
def test_a_seal_is_found_at_any_depth(value: object) -> None:
    assert carries_seal(value)


@pytest.mark.parametrize("value", [None, "$sealed", ["$sealed"], {"a": "$sealed"}, {"sealed": {}}, {}])
def test_the_word_alone_is_no_seal(value: object) -> None:
    assert not carries_seal(value)


def test_a_value_of_any_depth_can_be_searched() -> None:
    value: object = SEAL
    for _ in range(100_000):
        value = [value]
    assert carries_seal(value)
