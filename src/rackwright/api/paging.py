"""The parameters of every list: filters, sort, cursor and limit, from the resource's declaration in the store."""

import base64
import binascii
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Request, Response
from pydantic import BaseModel

from rackwright.api.answers import answer_page
from rackwright.domain.errors import Invalid
from rackwright.store.listing import MOST, Column, Filter, Listing, Wanted, checked_key, key_of, page_sql
from rackwright.store.session import Session

R = TypeVar("R")
RESERVED = ("sort", "limit", "cursor", "fields")
Number = Annotated[int, Query(ge=-(2**63), le=2**63 - 1)]


@dataclass(frozen=True)
class Asked:
    """What a client asked of a list."""

    listing: Listing
    wanted: Wanted
    fields: frozenset[str] | None


def parameters(listing: Listing, **fixed: str) -> Callable[..., Asked]:
    """The dependency that takes a list's parameters from the query. What the list does not know is refused: a filter
    with a typing error must not look like one that lets everything through."""
    filters = _filters(listing)
    names = {*filters, *RESERVED, *fixed}

    def asked(request: Request, **given: Any) -> Asked:
        unknown = sorted(request.query_params.keys() - names)
        if unknown:
            raise Invalid(f"{listing.name} have no filter {unknown[0][:80]!r}. There are: {', '.join(sorted(names))}.")
        fields = given.pop("fields")
        sort, limit, cursor = given.pop("sort"), given.pop("limit"), given.pop("cursor")
        return Asked(
            listing,
            Wanted(
                sort,
                limit,
                None if cursor is None else _after(listing, sort, cursor),
                {
                    name: value if isinstance(value, list) else [value]
                    for name, value in given.items()
                    if value is not None
                },
            ),
            None if fields is None else frozenset(name.strip() for name in fields.split(",")),
        )

    asked.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                for name, (annotation, default) in {**filters, **_common(listing)}.items()
            ),
        ]
    )
    return asked


def _common(listing: Listing) -> dict[str, tuple[Any, Any]]:
    sorts = tuple(way + name for name in listing.sorts for way in ("", "-"))
    return {
        "sort": (
            Annotated[Literal[sorts], Query(description="What to sort by; with - in front the last comes first.")],
            listing.default,
        ),
        "limit": (Annotated[int, Query(ge=1, le=MOST, description="How many at most.")], 100),
        "cursor": (Annotated[str | None, Query(max_length=2000, description="`next` of the page before.")], None),
        "fields": (
            Annotated[str | None, Query(description="Only these properties of each, separated by commas.")],
            None,
        ),
    }


def _filters(listing: Listing) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for name, column in listing.columns.items():
        if column.filter is Filter.TIME:
            for end in ("after", "before"):
                says = f"{column.says or name.replace('_', ' ').capitalize()}: {end} this."
                found[f"{name}_{end}"] = (Annotated[datetime | None, Query(description=says)], None)
        elif column.filter is not Filter.NONE:
            found[name] = (_annotation(name, column), None)
    return found


def _annotation(name: str, column: Column) -> Any:
    says = f"{column.says or name.replace('_', ' ').capitalize()}: {column.filter.value}."
    type_: Any = str
    match column.filter:
        case Filter.FLAG:
            return Annotated[bool | None, Query(description=says)]
        case Filter.NUMBER:
            type_ = Number
        case Filter.CHOICE:
            type_ = Literal[tuple(column.choices)]
    return Annotated[list[type_] | None, Query(description=says, max_length=100)]


def _after(listing: Listing, sort: str, cursor: str) -> tuple[object, int]:
    wrong = Invalid("This cursor is not one of this list; start without one.")
    try:
        given = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise wrong from None
    if not isinstance(given, list) or len(given) != 3:
        raise wrong
    if given[0] != sort:
        raise Invalid("This cursor is of a list that was sorted otherwise; keep `sort` while you page.")
    return checked_key(listing, sort, given[1], given[2])


def _cursor(sort: str, key: tuple[object, int]) -> str:
    text = json.dumps([sort, *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


async def page(
    session: Session,
    asked: Asked,
    select: Callable[..., Awaitable[Sequence[R]]],
    model: type[BaseModel],
    shown: Callable[[R], BaseModel],
    *more: str,
    **values: object,
) -> Response:
    """One page of a list. `select` is the resource's own query, which takes what follows its SELECT."""
    where, bound = page_sql(asked.listing, asked.wanted, *more)
    found = list(await select(session, where, **bound, **values))
    next = None
    if len(found) > asked.wanted.limit:
        found = found[: asked.wanted.limit]
        next = _cursor(asked.wanted.sort, key_of(asked.listing, asked.wanted, found[-1]))
    return answer_page(model, map(shown, found), next, asked.fields)
