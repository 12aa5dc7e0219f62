"""Which database URLs are understood."""

import pytest

from rackwright.store.database_errors import DatabaseUrlInvalid
from rackwright.store.db.database import normalise_url


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_leads_to_our_driver(scheme: str) -> None:
    url = normalise_url(f"{scheme}://rack:p%40ss@db.example:6432/fleet?sslmode=require")
    assert url.render_as_string(hide_password=False) == (
        "postgresql+psycopg://rack:p%40ss@db.example:6432/fleet?sslmode=require"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mysql://rack:secret@db/fleet", "begins with 'mysql'"),
        ("postgresql+asyncpg://rack:secret@db/fleet", "begins with 'postgresql\\+asyncpg'"),
        ("postgresql://rack:secret@db", "names no database"),
        ("postgresql://rack@db?password=secret", "names no database"),
        ("rack:secret@db/fleet", "cannot be read"),
        ("postgresql://rack:secret@db:port/fleet", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_wrong_url_is_refused_without_showing_its_password(text: str, words: str) -> None:
    with pytest.raises(DatabaseUrlInvalid, match=words) as refusal:
        normalise_url(text)
    assert "secret" not in refusal.value.message
    assert "postgresql://" in refusal.value.message
