"""The metadata that holds all tables, and functions for the kinds of columns and constraints that they share."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Integer,
    MetaData,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import UserDefinedType

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)


class XID8(UserDefinedType[str]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


ischema_names["xid8"] = XID8  # so that the schema of a database can be compared with these tables


def id_column() -> Column[int]:
    return Column("id", BigInteger, Identity(), primary_key=True)


def json_column(name: str, nullable: bool = False) -> Column[Any]:
    return Column(name, JSONB, nullable=nullable, server_default=None if nullable else text("'{}'"))


def words_column(name: str) -> Column[Any]:
    return Column(name, ARRAY(Text), nullable=False, server_default=text("'{}'"))


def flag_column(name: str, default: bool = False) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text(str(default).lower()))


def line_column(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=text("''"))


def number_column(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def time_column(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True))


def now_column(name: str) -> Column[Any]:
    """Return a column for the time at which its row was made."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("now()"))


def refers_to(
    name: str, to: str, *, nullable: bool = False, index: bool = False, ondelete: str | None = None
) -> Column[int]:
    """Return a column that refers to the row of another table."""
    return Column(name, BigInteger, ForeignKey(to, ondelete=ondelete), nullable=nullable, index=index)


def quoted(words: Iterable[str]) -> str:
    """Return words as a list of SQL literals, sorted."""
    return ", ".join(f"'{word}'" for word in sorted(words))


def one_of(name: str, words: Iterable[str]) -> CheckConstraint:
    """Return the constraint that a column holds one of these words."""
    return CheckConstraint(f"{name} IN ({', '.join(repr(str(word)) for word in words)})", name=name)
