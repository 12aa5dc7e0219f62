"""Paged lists: their query parameters (filters, sort, cursor, limit, fields), and the reading of one page.

The parameters come from the declaration of each list in the store.
"""

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
DEFAULT_LIMIT = 100
Number = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


@dataclass(frozen=True)
class ListQuery:
    """The query of a client for a page of a list."""

    listing: Listing
    page_request: PageRequest
    fields: frozenset[str] | None


class ListDependency:
    """The FastAPI dependency that reads a list's parameters from the query, all in one look.

    A parameter that the list does not know is refused: a filter with a typing error must not look like one that lets
    everything through. The framework would take each of some twenty parameters for itself, which costs more than the
    query for a page.
    """

    def __init__(self, listing: Listing, others: tuple[str, ...] = ()) -> None:
        """`others`: the names of query parameters that the route reads by itself."""
        self._listing = listing
        self._others = others
        fields = {**_filter_parameters(listing), **_common_parameters(listing)}
        self._repeated = frozenset(name for name, (type_, _) in fields.items() if _is_list_type(type_))
        self._model: type[BaseModel] = create_model(f"{listing.name}_query", **fields)  # type: ignore[call-overload]

    async def __call__(self, request: Request) -> ListQuery:
        listing, params = self._listing, request.query_params
        unknown = sorted(params.keys() - self._model.model_fields.keys() - {*self._others})
        if unknown:
            names = ", ".join(sorted([*self._model.model_fields, *self._others]))
            raise Invalid(f"{listing.name} have no filter {unknown[0][:80]!r}. There are: {names}.")
        try:
            validated = self._model.model_validate(
                {
                    name: params.getlist(name) if name in self._repeated else params[name]
                    for name in params
                    if name not in self._others
                }
            )
        except ValidationError as error:
            errors = [{**fault, "loc": ("query", *fault["loc"])} for fault in error.errors(include_url=False)]
            raise RequestValidationError(errors) from None
        values = {name: getattr(validated, name) for name in validated.model_fields_set}
        sort, limit = values.pop("sort", listing.default), values.pop("limit", DEFAULT_LIMIT)
        cursor, fields = values.pop("cursor", None), values.pop("fields", None)
        return ListQuery(
            listing,
            PageRequest(
                sort,
                limit,
                None if cursor is None else _parse_cursor(listing, sort, cursor),
                {name: value if isinstance(value, list) else [value] for name, value in values.items()},
            ),
            None if fields is None else frozenset(name.strip() for name in fields.split(",")),
        )

    def openapi_parameters(self) -> list[dict[str, Any]]:
        """Return the parameters as OpenAPI describes them."""
        parameters = []
        for name, schema in self._model.model_json_schema()["properties"].items():
            schema.pop("title", None)
            if schema.get("default") is None:
                schema.pop("default", None)
            description = schema.pop("description", "")
            parameters.append(
                {"name": name, "in": "query", "required": False, "description": description, "schema": schema}
            )
        return parameters


def _is_list_type(type_: Any) -> bool:
    origin: object = get_origin(type_)
    return origin is list


def list_parameters(listing: Listing, *others: str) -> ListDependency:
    """Return the dependency of a route that lists."""
    return ListDependency(listing, others)


ModelFields = dict[str, tuple[Any, Any]]


def _common_parameters(listing: Listing) -> ModelFields:
    """Return the parameters that every list has."""
    sorts = tuple(direction + name for name in listing.sorts for direction in ("", "-"))
    return {
        "sort": (
            Literal[sorts],
            Field(listing.default, description="What to sort by; with - in front the last comes first."),
        ),
        "limit": (int, Field(DEFAULT_LIMIT, ge=1, le=MAX_PAGE_SIZE, description="How many at most.")),
        "cursor": (str, Field(None, max_length=2000, description="`next` of the page before.")),
        "fields": (str, Field(None, description="Only these properties of each, separated by commas.")),
    }


def _filter_parameters(listing: Listing) -> ModelFields:
    """Return the parameters that filter by a column."""
    fields: ModelFields = {}
    for name, column in listing.columns.items():
        description = column.says or name.replace("_", " ").capitalize()
        if column.filter is Filter.TIME:
            for bound in ("after", "before"):
                fields[f"{name}_{bound}"] = (datetime, Field(None, description=f"{description}: {bound} this."))
        elif column.filter is Filter.FLAG:
            fields[name] = (bool, Field(None, description=f"{description}: {column.filter.value}."))
        elif column.filter is not Filter.NONE:
            field = Field(None, description=f"{description}: {column.filter.value}.", max_length=100)
            fields[name] = (list[_filter_type(column)], field)  # type: ignore[misc]
    return fields


def _filter_type(column: Column) -> Any:
    if column.filter is Filter.NUMBER:
        return Number
    return Literal[tuple(column.choices)] if column.filter is Filter.CHOICE else str


def _parse_cursor(listing: Listing, sort: str, cursor: str) -> tuple[object, int]:
    """Return the key of the row after which the page begins."""
    not_ours = Invalid("This cursor is not one of this list; start without one.")
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise not_ours from None
    if not isinstance(parts, list) or len(parts) != 3:
        raise not_ours
    if parts[0] != sort:
        raise Invalid("This cursor is of a list that was sorted otherwise; keep `sort` while you page.")
    return checked_key(listing, sort, parts[1], parts[2])


def _make_cursor(sort: str, key: tuple[object, int]) -> str:
    """Return the cursor of the page after the row with this key."""
    text = json.dumps([sort, *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


async def read_page(
    session: Session,
    visible: Visibility,
    query: ListQuery,
    select: Callable[..., Awaitable[Sequence[R]]],
    model: type[BaseModel],
    to_item: Callable[[R], BaseModel | Mapping[str, object]],
    *conditions: str,
    **values: object,
) -> Response:
    """Return the response with one page of a list.

    `select` is the resource's own query, which takes what follows its SELECT; `to_item` makes an item of a row;
    `conditions` are more SQL conditions, with their `values`.
    """
    is_visible = visible.condition(query.listing.listed or query.listing.seen)
    where, bound = page_sql(query.listing, query.page_request, is_visible, *conditions)
    rows = list(await select(session, where, **bound, **values, **visible.values))
    next = None
    if len(rows) > query.page_request.limit:
        rows = rows[: query.page_request.limit]
        next = _make_cursor(query.page_request.sort, key_of(query.listing, query.page_request, rows[-1]))
    return answer_page(model, [to_item(row) for row in rows], next, query.fields)
