"""Lists that people page through: which columns of a resource can be filtered and sorted by, and the SQL of one page.

Each resource declares its `Listing` beside its queries. Nothing a caller says becomes SQL: names pick from the
declaration, values are bound. A page starts after a key (what it is sorted by, and the id), so the thousandth costs
what the first did, and rows that come or go meanwhile neither repeat nor hide others.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from rackwright.domain.errors import Invalid

MOST = 1000
"""Objects of one page at most."""

EVERYBODY = "true"
"""What lies in no deployment and is shown to whoever may see anything: the vocabulary of the others."""
NOBODY = "false"
"""What is not shown to somebody who may see only a part of the deployments."""


class Filter(Enum):
    """How a column can be asked for."""

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
    """Of a reference: what an id is compared with."""
    choices: Mapping[str, int | str] = field(default_factory=dict)
    """Each word, and how it is stored."""
    sort: str = ""
    """The SQL type to sort by; empty: it cannot be sorted by. What is sorted by is never null."""
    key: Callable[[Any], object] | None = None
    """What of a record it is sorted by; its attribute of the same name if not given."""
    says: str = ""
    """One line for the documentation."""


@dataclass(frozen=True)
class Listing:
    """What can be asked of one resource."""

    name: str
    columns: Mapping[str, Column]
    default: str
    """How it is sorted if nobody says; `-` in front: the last first."""
    id: str
    """The SQL of its id, which settles equals."""
    seen: str = NOBODY
    """The SQL that says of a row whether it lies in the deployments `:sees`; for `Visibility.condition`."""
    listed: str = ""
    """The same for a page, where it is not left to the planner: walking a long table in the order of the page, past all
    that may not be seen, looks cheap to it and is not. Empty: as `seen`."""

    @property
    def sorts(self) -> tuple[str, ...]:
        return tuple(name for name, column in self.columns.items() if column.sort)


@dataclass(frozen=True)
class Wanted:
    """One page of a list."""

    sort: str
    limit: int = 100
    after: tuple[object, int] | None = None
    """The key of the last one seen."""
    filters: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values by name of filter; any of them will do."""

    @property
    def column(self) -> str:
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")


def page_sql(listing: Listing, wanted: Wanted, *more: str) -> tuple[str, dict[str, object]]:
    """What follows the SELECT of the resource, and its values. One row more than asked for says that there are more.

    `more`: conditions of the caller's own.
    """
    conditions = list(more)
    values: dict[str, object] = {}
    for number, (name, given) in enumerate(sorted(wanted.filters.items())):
        conditions.append(_condition(listing, name, given, f"filter_{number}", values))
    column = listing.columns[wanted.column]
    if wanted.after is not None:
        sign = "<" if wanted.descending else ">"
        conditions.append(f"({column.sql}, {listing.id}) {sign} (CAST(:after AS {column.sort}), :after_id)")
        values["after"], values["after_id"] = wanted.after
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    way = " DESC" if wanted.descending else ""
    order = dict.fromkeys((f"{column.sql}{way}", f"{listing.id}{way}"))
    values["page_limit"] = wanted.limit + 1
    return f"{where}ORDER BY {', '.join(order)} LIMIT :page_limit", values


def _condition(listing: Listing, name: str, given: Sequence[Any], slot: str, values: dict[str, object]) -> str:
    base, _, end = name.rpartition("_")
    if end in ("after", "before") and base in listing.columns:
        values[slot] = given[-1]
        return f"{listing.columns[base].sql} {'>' if end == 'after' else '<'} CAST(:{slot} AS timestamptz)"
    column = listing.columns[name]
    match column.filter:
        case Filter.TEXT:
            return _text(column, given, slot, values)
        case Filter.REFERENCE:
            values[slot] = [str(one).lower() for one in given]
            values[f"{slot}_ids"] = [key_id(one) for one in given]
            return f"({column.sql} = ANY (:{slot}) OR {column.id_sql} = ANY (CAST(:{slot}_ids AS bigint[])))"
        case Filter.WORDS:
            values[slot] = list(given)
            return f"{column.sql} && CAST(:{slot} AS text[])"
        case Filter.CHOICE:
            given = [column.choices[one] for one in given]
    if len(given) == 1:
        values[slot] = given[0]
        return f"{column.sql} = :{slot}"
    values[slot] = list(given)
    return f"{column.sql} = ANY (:{slot})"


def _text(column: Column, given: Sequence[str], slot: str, values: dict[str, object]) -> str:
    if not any("*" in one for one in given):
        values[slot] = list(given)
        return f"{column.sql} = ANY (:{slot})"
    values[slot] = [re.sub(r"([\\%_])", r"\\\1", one).replace("*", "%") for one in given]
    return f"{column.sql} LIKE ANY (:{slot})"


def key_id(name_or_id: str | int) -> int:
    """Anything with a name is addressed by name or id; -1 is nobody's."""
    text = str(name_or_id)
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else -1


# --- the key of the last one seen, as text and back


def key_of(listing: Listing, wanted: Wanted, record: Any) -> tuple[str | int | bool, int]:
    """What the next page starts after, in words that JSON has."""
    name = wanted.column
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
    """A key that somebody hands in must be one that this list could have given out."""
    wrong = Invalid("This cursor is not one of this list; start without one.", "")
    type_ = _TYPES[listing.columns[sort.removeprefix("-")].sort]
    if type(value) is not type_ or type(id) is not int or abs(id) >= 1 << 63:
        raise wrong
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise wrong
    if listing.columns[sort.removeprefix("-")].sort == "timestamptz":
        try:
            value = datetime.fromisoformat(str(value))
        except ValueError:
            raise wrong from None
    return value, id
