"""Lists that people page through: which columns of a resource can be filtered and sorted by, and the SQL of one page.

Each resource declares its `Listing` beside its queries. No text of a caller becomes SQL: names pick columns of the
declaration, values are bound. A page starts after a key (the value it is sorted by, and the id), so the thousandth page
costs as much as the first, and rows that come or go meanwhile neither repeat nor hide others.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from rackwright.domain.errors import Invalid

MAX_PAGE_SIZE = 1000
"""The largest number of objects on one page."""

SEEN_BY_EVERY_READER = "true"
"""`Listing.seen` of rows that lie in no deployment and are shown to every reader, because other rows refer to them."""
HIDDEN_FROM_PARTIAL_READERS = "false"
"""`Listing.seen` of rows that are not shown to readers who may see only a part of the deployments."""


class Filter(Enum):
    """The kinds of filters on a column, each with its description."""

    NONE = "not at all"
    TEXT = "any of these, `*` stands for anything"
    NUMBER = "any of these numbers"
    FLAG = "true or false"
    TIME = "a span: `_after` and `_before`"
    CHOICE = "any of these words"
    REFERENCE = "any of these, by name or id"
    WORDS = "a list that has any of these"


@dataclass(frozen=True)
class Column:
    sql: str
    filter: Filter = Filter.TEXT
    id_sql: str = ""
    """For a reference: the SQL that an id is compared with."""
    choices: Mapping[str, int | str] = field(default_factory=dict)
    """For a choice: each word, and the value that is stored for it."""
    sort: str = ""
    """The SQL type to sort by; empty: the list cannot be sorted by this column. A column to sort by is never null."""
    key: Callable[[Any], object] | None = None
    """Returns the value of a record that it is sorted by; None: its attribute with the name of the column."""
    says: str = ""
    """One line for the documentation."""


@dataclass(frozen=True)
class Listing:
    """How the rows of one resource can be filtered, sorted and limited to what a reader may see."""

    name: str
    columns: Mapping[str, Column]
    default: str
    """The column it is sorted by if the caller names none; with `-` in front: descending."""
    id: str
    """The SQL of its id, which decides the order of rows with the same value."""
    seen: str = HIDDEN_FROM_PARTIAL_READERS
    """The SQL condition that a row lies in the deployments `:sees`; for `Visibility.condition`."""
    listed: str = ""
    """The same condition for a page, written so that the planner has no choice: to walk a long table in the order of
    the page, past all the rows that may not be seen, looks cheap to the planner and is not. Empty: `seen` is used."""

    @property
    def sorts(self) -> tuple[str, ...]:
        return tuple(name for name, column in self.columns.items() if column.sort)


@dataclass(frozen=True)
class PageRequest:
    """Which page of a list a caller wants."""

    sort: str
    limit: int = 100
    after: tuple[object, int] | None = None
    """The key of the last row of the page before."""
    filters: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The values of each filter by its name; a row matches if it has any of them."""

    @property
    def column(self) -> str:
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")


def page_sql(listing: Listing, request: PageRequest, *extra: str) -> tuple[str, dict[str, object]]:
    """Return the SQL that follows the SELECT of the resource, and its values.

    It selects one row more than requested: if that comes, there are more pages. `extra`: conditions of the caller.
    """
    conditions = list(extra)
    values: dict[str, object] = {}
    for number, (name, alternatives) in enumerate(sorted(request.filters.items())):
        conditions.append(_condition(listing, name, alternatives, f"filter_{number}", values))
    column = listing.columns[request.column]
    if request.after is not None:
        sign = "<" if request.descending else ">"
        conditions.append(f"({column.sql}, {listing.id}) {sign} (CAST(:after AS {column.sort}), :after_id)")
        values["after"], values["after_id"] = request.after
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    direction = " DESC" if request.descending else ""
    order = dict.fromkeys((f"{column.sql}{direction}", f"{listing.id}{direction}"))
    values["page_limit"] = request.limit + 1
    return f"{where}ORDER BY {', '.join(order)} LIMIT :page_limit", values


def _condition(listing: Listing, name: str, alternatives: Sequence[Any], slot: str, values: dict[str, object]) -> str:
    base, _, end = name.rpartition("_")
    if end in ("after", "before") and base in listing.columns:
        values[slot] = alternatives[-1]
        return f"{listing.columns[base].sql} {'>' if end == 'after' else '<'} CAST(:{slot} AS timestamptz)"
    column = listing.columns[name]
    match column.filter:
        case Filter.TEXT:
            return _text_condition(column, alternatives, slot, values)
        case Filter.REFERENCE:
            values[slot] = [str(name_or_id).lower() for name_or_id in alternatives]
            values[f"{slot}_ids"] = [key_id(name_or_id) for name_or_id in alternatives]
            return f"({column.sql} = ANY (:{slot}) OR {column.id_sql} = ANY (CAST(:{slot}_ids AS bigint[])))"
        case Filter.WORDS:
            values[slot] = list(alternatives)
            return f"{column.sql} && CAST(:{slot} AS text[])"
        case Filter.CHOICE:
            alternatives = [column.choices[word] for word in alternatives]
    if len(alternatives) == 1:
        values[slot] = alternatives[0]
        return f"{column.sql} = :{slot}"
    values[slot] = list(alternatives)
    return f"{column.sql} = ANY (:{slot})"


def _text_condition(column: Column, patterns: Sequence[str], slot: str, values: dict[str, object]) -> str:
    if not any("*" in pattern for pattern in patterns):
        values[slot] = list(patterns)
        return f"{column.sql} = ANY (:{slot})"
    values[slot] = [re.sub(r"([\\%_])", r"\\\1", pattern).replace("*", "%") for pattern in patterns]
    return f"{column.sql} LIKE ANY (:{slot})"


def key_id(name_or_id: str | int) -> int:
    """Return the id, if the text may be one, else -1, which no row has: rows are addressed by name or id."""
    text = str(name_or_id)
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else -1


# --- the key of the last row of a page, as JSON and back


def key_of(listing: Listing, request: PageRequest, record: Any) -> tuple[str | int | bool, int]:
    """Return the key of a record that the next page starts after, in types that JSON has."""
    name = request.column
    key = listing.columns[name].key
    value = getattr(record, name) if key is None else key(record)
    if isinstance(value, datetime):
        value = value.isoformat()
    assert isinstance(value, str | int | bool), f"{listing.name} cannot be paged through by {name}"
    return value, record.id


_TYPES: dict[str, type] = {
    "text": str,
    "inet": str,
    "timestamptz": str,
    "bigint": int,
    "smallint": int,
    "boolean": bool,
}


def checked_key(listing: Listing, sort: str, value: object, id: object) -> tuple[object, int]:
    """Return a key that a caller sent, as SQL values. Refuse one that this list cannot have given out."""
    refusal = Invalid("This cursor is not one of this list; start without one.", "")
    type_ = _TYPES[listing.columns[sort.removeprefix("-")].sort]
    if type(value) is not type_ or type(id) is not int or abs(id) >= 1 << 63:
        raise refusal
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise refusal
    if listing.columns[sort.removeprefix("-")].sort == "timestamptz":
        try:
            value = datetime.fromisoformat(str(value))
        except ValueError:
            raise refusal from None
    return value, id
