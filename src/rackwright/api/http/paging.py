"""The parameters of every list: filters, sort, cursor and limit, from the resource's declaration in the store."""

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, get_origin

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError, create_model

from rackwright.api.http.answers import answer_page
from rackwright.domain.errors import Invalid
from rackwright.store.db.listing import (
    MAX_PAGE_SIZE,
    Column,
    Filter,
    Listing,
    PageRequest,
    checked_key,
    key_of,
    page_sql,
)
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility

R = TypeVar("R")
LIMIT = 100
Number = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


@dataclass(frozen=True)
class Asked:
    """What a client asked of a list."""

    listing: Listing
    wanted: PageRequest
    fields: frozenset[str] | None


class ListDependency:
    """Takes a list's parameters from the query, all in one look. What the list does not know is refused: a filter with
    a typing error must not look like one that lets everything through.

    The framework would take each of some twenty parameters for itself, which costs more than the query for a page.
    """

    def __init__(self, listing: Listing, others: tuple[str, ...] = ()) -> None:
        """`others`: what the route takes from the query for itself."""
        self._listing = listing
        self._others = others
        fields = {**_filters(listing), **_common(listing)}
        self._repeated = frozenset(name for name, (type_, _) in fields.items() if _repeats(type_))
        self._model: type[BaseModel] = create_model(f"{listing.name}_query", **fields)  # type: ignore[call-overload]

    async def __call__(self, request: Request) -> Asked:
        listing, query = self._listing, request.query_params
        unknown = sorted(query.keys() - self._model.model_fields.keys() - {*self._others})
        if unknown:
            there = ", ".join(sorted([*self._model.model_fields, *self._others]))
            raise Invalid(f"{listing.name} have no filter {unknown[0][:80]!r}. There are: {there}.")
        try:
            found = self._model.model_validate(
                {
                    name: query.getlist(name) if name in self._repeated else query[name]
                    for name in query
                    if name not in self._others
                }
            )
        except ValidationError as wrong:
            errors = [{**one, "loc": ("query", *one["loc"])} for one in wrong.errors(include_url=False)]
            raise RequestValidationError(errors) from None
        given = {name: getattr(found, name) for name in found.model_fields_set}
        sort, limit = given.pop("sort", listing.default), given.pop("limit", LIMIT)
        cursor, fields = given.pop("cursor", None), given.pop("fields", None)
        return Asked(
            listing,
            PageRequest(
                sort,
                limit,
                None if cursor is None else _after(listing, sort, cursor),
                {name: value if isinstance(value, list) else [value] for name, value in given.items()},
            ),
            None if fields is None else frozenset(name.strip() for name in fields.split(",")),
        )

    def documented(self) -> list[dict[str, Any]]:
        """The parameters as OpenAPI has them."""
        found = []
        for name, schema in self._model.model_json_schema()["properties"].items():
            schema.pop("title", None)
            if schema.get("default") is None:
                schema.pop("default", None)
            says = schema.pop("description", "")
            found.append({"name": name, "in": "query", "required": False, "description": says, "schema": schema})
        return found


def _repeats(type_: Any) -> bool:
    origin: object = get_origin(type_)
    return origin is list


def parameters(listing: Listing, *others: str) -> ListDependency:
    """The dependency of a route that lists."""
    return ListDependency(listing, others)


Fields = dict[str, tuple[Any, Any]]


def _common(listing: Listing) -> Fields:
    sorts = tuple(way + name for name in listing.sorts for way in ("", "-"))
    return {
        "sort": (
            Literal[sorts],
            Field(listing.default, description="What to sort by; with - in front the last comes first."),
        ),
        "limit": (int, Field(LIMIT, ge=1, le=MAX_PAGE_SIZE, description="How many at most.")),
        "cursor": (str, Field(None, max_length=2000, description="`next` of the page before.")),
        "fields": (str, Field(None, description="Only these properties of each, separated by commas.")),
    }


def _filters(listing: Listing) -> Fields:
    found: Fields = {}
    for name, column in listing.columns.items():
        says = column.says or name.replace("_", " ").capitalize()
        if column.filter is Filter.TIME:
            for end in ("after", "before"):
                found[f"{name}_{end}"] = (datetime, Field(None, description=f"{says}: {end} this."))
        elif column.filter is Filter.FLAG:
            found[name] = (bool, Field(None, description=f"{says}: {column.filter.value}."))
        elif column.filter is not Filter.NONE:
            field = Field(None, description=f"{says}: {column.filter.value}.", max_length=100)
            found[name] = (list[_type(column)], field)  # type: ignore[misc]
    return found


def _type(column: Column) -> Any:
    if column.filter is Filter.NUMBER:
        return Number
    return Literal[tuple(column.choices)] if column.filter is Filter.CHOICE else str


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
    visible: Visibility,
    asked: Asked,
    select: Callable[..., Awaitable[Sequence[R]]],
    model: type[BaseModel],
    shown: Callable[[R], BaseModel | Mapping[str, object]],
    *more: str,
    **values: object,
) -> Response:
    """One page of a list. `select` is the resource's own query, which takes what follows its SELECT."""
    seen = visible.condition(asked.listing.listed or asked.listing.seen)
    where, bound = page_sql(asked.listing, asked.wanted, seen, *more)
    found = list(await select(session, where, **bound, **values, **visible.values))
    next = None
    if len(found) > asked.wanted.limit:
        found = found[: asked.wanted.limit]
        next = _cursor(asked.wanted.sort, key_of(asked.listing, asked.wanted, found[-1]))
    return answer_page(model, [shown(one) for one in found], next, asked.fields)
