"""Data from outside is bounded and cleaned before it is stored."""

import pytest

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid
from rackwright.domain.foreign import DEEPEST, LARGEST, MOST_VALUES, check_foreign_document, storable_text


def nested(levels: int) -> Json:
    document: Json = "leaf"
    for _ in range(levels):
        document = {"inner": document}
    return document


def test_an_ordinary_document_is_taken() -> None:
    check_foreign_document(
        {"installed": {"os": "debian-12"}, "disks": [{"bytes": 10**12, "rotational": False}], "name": "Grüße"}
    )
    check_foreign_document(nested(DEEPEST))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"bmc": {"password": {"$sealed": "1:AAAA", "fingerprint": "00"}}}, "sealed"),
        ([{"$sealed": 1}], "sealed"),
        (nested(DEEPEST + 1), "deep"),
        (nested(5_000), "deep"),
        ({"a\0": 1}, "NUL"),
        ({"a": "\0"}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": float("nan")}, "nan"),
        ({"a": float("inf")}, "inf"),
        ({"a": ["x" * (LARGEST // 2)] * 3}, "larger"),
        ([0] * (MOST_VALUES + 1), "larger"),
    ],
)
def test_what_cannot_be_stored_or_trusted_is_refused(document: Json, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        check_foreign_document(document)


def test_text_is_made_storable_without_losing_the_rest() -> None:
    assert storable_text("a\0b") == "a␀b"
    assert storable_text("half \ud83d of a pair") == "half ? of a pair"
    assert storable_text("Grüße") == "Grüße"
    assert storable_text("x" * 20, longest=10) == "x" * 10 + " ..."
