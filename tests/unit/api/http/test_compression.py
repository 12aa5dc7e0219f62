"""Which clients get compressed responses."""

import pytest

from rackwright.api.http.compression import accepts_gzip


@pytest.mark.parametrize(
    ("accept_encoding", "takes"),
    [
        ("gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP;q=0.8", True),
        ("deflate,gzip ; q=0.001", True),
        ("gzip;q=1.000", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000, br", False),
        ("identity", False),
        ("", False),
        ("x-gzip", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_for_whoever_asks_for_it(accept_encoding: str, takes: bool) -> None:
    assert (
        accepts_gzip({"type": "http", "headers": [(b"host", b"x"), (b"accept-encoding", accept_encoding.encode())]})
        is takes
    )


def test_who_says_nothing_is_sent_plain_answers() -> None:
    assert not accepts_gzip({"type": "http", "headers": []})
