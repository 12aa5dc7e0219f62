"""Masking: secrets are hidden however they come, in pieces, over two lines, encoded."""

import base64
import itertools
import json
import shlex
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.masking import LONGEST_FORM, MOST_HELD_BACK, Mask, MaskedStream, masked_wall, secret_texts
from rackwright.domain.sealed import FINGERPRINT, MASK, SEAL

SECRET = "hunter2-is+not/enough'\"\\é"
KEY = "-----BEGIN KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nQyNTUxOQAAACD8+/xyz\n-----END KEY-----\n"


def streamed(mask: Mask, *pieces: str) -> str:
    stream = MaskedStream(mask)
    return "".join([*map(stream.feed, pieces), stream.end()])


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        shlex.quote(SECRET),
        quote(SECRET, safe=""),
        *(base64.b64encode(b"x" * before + SECRET.encode() + b"yz").decode() for before in range(4)),
        *(base64.urlsafe_b64encode(b"x" * before + SECRET.encode()).decode() for before in range(4)),
    ],
)
def test_a_secret_is_hidden_as_it_is_and_encoded(written: str) -> None:
    mask = Mask([SECRET])
    for text in (written, "\n".join(written), f"{written[:9]}\r\n{written[9:]}"):
        shown = mask.text(f"before {text} after")
        assert shown.startswith("before ")
        assert shown.endswith(" after")
        assert MASK in shown
        left = shown.replace("\n", "").replace("\r", "")
        assert not any(left.count(written[start : start + 8]) for start in range(4, len(written) - 12))


def test_base64_in_lines_is_hidden_across_them() -> None:
    written = base64.encodebytes(b"a" * 50 + SECRET.encode() + b"b" * 50).decode()
    assert "odW50ZXIy\nLWlzK2" in written
    shown = Mask([SECRET]).text(written)
    assert "W50ZXIy" not in shown
    assert "LWlzK2" not in shown
    assert shown.count("\n") == written.count("\n")


PRINTED = (
    f"a {SECRET} b\nc {SECRET[:7]}\n{SECRET[7:]} d\nhunter3 {base64.b64encode(SECRET.encode()).decode()}\n{KEY}end hun"
)


@given(st.lists(st.integers(0, len(PRINTED)), max_size=8))
def test_pieces_show_what_the_whole_shows(cuts: list[int]) -> None:
    mask = Mask([SECRET, KEY])
    edges = [0, *sorted(cuts), len(PRINTED)]
    shown = streamed(mask, *(PRINTED[start:end] for start, end in itertools.pairwise(edges)))
    assert "hunter2" not in shown
    assert SECRET[7:] not in shown
    assert "b3BlbnNz" not in shown
    assert shown.startswith(f"a {MASK} b\nc {MASK}\n d\nhunter3 {MASK}")
    assert shown.endswith("end hun")


def test_only_what_may_begin_a_secret_is_held_back() -> None:
    stream = MaskedStream(Mask(["hunter2"]))
    assert stream.feed("all is well\nhunter") == "all is well\n"
    assert stream.feed("s came") == "hunters came"
    assert stream.feed(" h\n") == " "
    assert stream.feed("unter2!") == f"{MASK}\n!"


def test_a_secret_that_begins_another_waits_for_the_longer_one() -> None:
    mask = Mask(["open sesame", "open sesame and more"])
    assert streamed(mask, "say open sesame", " and more.") == f"say {MASK}."
    assert streamed(mask, "say open sesame", ".") == f"say {MASK}."


def test_a_secret_without_end_is_hidden_in_pieces() -> None:
    secret = "".join(str(number) for number in range(3000))
    assert set(Mask([secret]).text(secret)) == {"*"}
    assert len(secret) > 2 * LONGEST_FORM


def test_line_ends_without_end_are_not_kept() -> None:
    stream = MaskedStream(Mask(["hunter2"]))
    assert stream.feed("h" + "\n" * MOST_HELD_BACK) == "h" + "\n" * MOST_HELD_BACK


@pytest.mark.parametrize("secret", ["", "abc", " a\nb "])
def test_what_is_too_short_to_be_told_from_other_text_is_left(secret: str) -> None:
    assert Mask([secret]).text("abc a b") == "abc a b"


def test_secrets_are_what_was_sealed() -> None:
    sealed: Json = {SEAL: "...", FINGERPRINT: "..."}
    stored: Json = {"db": {"password": sealed, "user": "app"}, "pins": sealed}
    opened: Json = {"db": {"password": "sesame", "user": "app"}, "pins": [123456, True, {"x": "y"}]}
    assert list(secret_texts(stored, opened)) == ["sesame", "123456", "y"]


def test_a_wall_keeps_a_secret_only_where_one_is_declared() -> None:
    wall: JsonObject = {
        "db": {"password": "sesame", "url": "pg://app:sesame@db"},
        "pin": 123456,
        "on": True,
        "list": ["sesame"],
    }
    shown = masked_wall(Mask(["sesame", "123456"]), wall, [("db", "password")])
    assert shown == {
        "db": {"password": "sesame", "url": f"pg://app:{MASK}@db"},
        "pin": MASK,
        "on": True,
        "list": [MASK],
    }
    assert masked_wall(Mask(), wall, []) is wall
