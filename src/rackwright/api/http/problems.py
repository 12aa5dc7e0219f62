"""Errors as people and programs get them: problem details (RFC 9457) with a stable `type`, whatever went wrong.

Refusals of the domain have their type from `domain/errors.py`. The framework's own refusals (no such route, a body that
does not fit its schema) get the same shape here, with a JSON pointer to what is wrong and what would be right.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException

from rackwright.api.audit import record_refusal
from rackwright.api.auth.authentication import Forbidden
from rackwright.api.auth.limits import TooMany
from rackwright.domain.barclamps.value_errors import is_of_another_kind, json_pointer, pydantic_words
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.rare_warning import RareWarning
from rackwright.store.db.session import UNREACHABLE, first_line

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
URN = "urn:rackwright:problem:"
MUST_BE = "must be "
MOST_FAULTS = 20
"""Faults that the response to one request lists; a request can have a hundred thousand."""
MOST_ERRORS_READ = 10 * MOST_FAULTS
LONGEST_NAME = 200


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    detail: str = Field(description="What is wrong, and what would be right.")
    pointer: str | None = Field(default=None, description="JSON pointer into the body.", examples=["/macs/0"])
    parameter: str | None = Field(default=None, description="Of the query, path or headers.", examples=["limit"])


class Problem(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str = Field(description="Stable: programs may compare it.", examples=["urn:rackwright:problem:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(ge=400, le=599, examples=[404])
    detail: str = Field(examples=["There is no node 'n9.rack.example'."])
    pointer: str | None = Field(default=None, description="JSON pointer into the body.", examples=["/name"])
    errors: list[Fault] | None = Field(default=None, description="All that is wrong, if several things may be.")


class TooLarge(RackwrightError):
    """The body is larger than what is taken here."""

    status = 413
    type = "too-large"


class Unsupported(RackwrightError):
    """This takes JSON: send it with the header Content-Type: application/json."""

    status = 415
    type = "unsupported-media-type"


class Stale(RackwrightError):
    """Somebody changed this since you read it. Read it again, then repeat your change."""

    status = 412
    type = "stale"


class DatabaseUnreachable(RackwrightError):
    """The database does not answer now. Try again in a moment."""

    status = 503
    type = "database-unreachable"


class InternalError(RackwrightError):
    """Something is wrong with the server, not with your request. Its log says more."""

    status = 500
    type = "internal"


def problem_of_error(error: RackwrightError) -> Problem:
    """Return an error as part of an answer about several objects, of which it concerns one."""
    title = error.type.replace("-", " ").capitalize()
    return Problem(type=URN + error.type, title=title, status=error.status, detail=error.message)


def problem_response(
    type_: str, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """Return a response with problem details; `more` are further members of the problem."""
    body = {"type": URN + type_, "title": type_.replace("-", " ").capitalize(), "status": status, "detail": detail}
    return JSONResponse({**body, **more}, status, headers, media_type=MEDIA_TYPE)


def error_response(error: RackwrightError) -> JSONResponse:
    """Return the response to a request that was refused with this error."""
    more: dict[str, Any] = {"pointer": error.pointer} if isinstance(error, Invalid) and error.pointer else {}
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(error.retry_after)
    return problem_response(error.type, error.status, error.message, headers=headers, **more)


def install(app: FastAPI) -> None:
    """Have every error of this application become a problem."""
    unreachable = partial(_handle_unreachable_database, RareWarning())  # strangers decide how many requests there are
    app.add_exception_handler(RackwrightError, _handle_rackwright_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    for data_error in (DataError, psycopg.DataError):
        app.add_exception_handler(data_error, _handle_data_error)
    for kind in set(UNREACHABLE) - {OSError}:  # a file that is missing is no matter of the database
        app.add_exception_handler(kind, unreachable)
    app.add_exception_handler(Exception, _handle_unforeseen_error)


async def _handle_rackwright_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RackwrightError)
    if isinstance(error, Forbidden):
        await record_refusal(request, error.message)
    return error_response(error)


async def _handle_unreachable_database(warn: Callable[[str], None], request: Request, error: Exception) -> Response:
    warn(f"{request.method} {request.url.path}: the database does not answer: {first_line(error)}.")
    return error_response(DatabaseUnreachable())


async def _handle_unforeseen_error(request: Request, error: Exception) -> Response:
    log.error("%s %s broke", request.method, request.url.path, exc_info=error)
    return error_response(InternalError())


async def _handle_data_error(request: Request, error: Exception) -> Response:
    """Refuse a value that PostgreSQL cannot store.

    Its text has no NUL and its numbers have an end: this is the last line of defence, after the schemas.
    """
    log.info("%s %s: a value that cannot be stored: %s", request.method, request.url.path, first_line(error))
    return problem_response(
        "invalid", 422, "A value of this request cannot be stored: a number out of range, or a NUL in text."
    )


_TYPES = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 415: "unsupported-media-type"}


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    type_ = _TYPES.get(error.status_code, HTTPStatus(error.status_code).phrase.lower().replace(" ", "-"))
    details = {
        404: f"There is nothing at {request.url.path[:200]}. The routes are listed in /api/v2/docs.",
        405: f"{request.method} cannot be asked of {request.url.path[:200]}; the header Allow says what can.",
    }
    return problem_response(
        type_, error.status_code, details.get(error.status_code, error.detail), headers=error.headers
    )


async def _handle_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    faults = _faults(errors[:MOST_ERRORS_READ], error.body)
    return faults_response(faults[:MOST_FAULTS], len(faults) + len(errors[MOST_ERRORS_READ:]))


def faults_response(faults: Sequence[Fault], count: int) -> JSONResponse:
    """Return the response to a request with `count` faults, of which these are the first."""
    first = faults[0]
    detail = first.detail
    if count > 1:
        detail += f" (and {count - 1} more, see errors)"
    more: dict[str, Any] = {} if first.pointer is None else {"pointer": first.pointer}
    errors = [fault.model_dump(exclude_none=True) for fault in faults]
    return problem_response("invalid", 422, detail, **more, errors=errors)


def faults_in_document(errors: Sequence[Mapping[str, Any]], document: object) -> list[Fault]:
    """Return what pydantic found wrong in a document, with pointers into it."""
    return _faults([{**error, "loc": ("body", *error["loc"])} for error in errors], document)


def _faults(errors: Iterable[Mapping[str, Any]], body: object) -> list[Fault]:
    """Return what pydantic found wrong with a request, with one fault for each value that is wrong.

    For a value that may be one of several types, pydantic has one error for each type; the location of each then ends
    with the name of that type, which is nothing that a person has sent.
    """
    by_location: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for error in errors:
        where, *path = error["loc"]
        steps = _steps_in_body(path, body, error["type"]) if where == "body" else path
        by_location.setdefault((where, *map(str, steps)), []).append(error)
    return [_fault(where, path, errors_there) for (where, *path), errors_there in by_location.items()]


def _steps_in_body(path: Sequence[str | int], body: object, kind: str) -> list[str | int]:
    """Return the part of a location that leads through the body as it was sent; for a missing value, with its name."""
    if kind == "json_invalid":
        return []
    steps: list[str | int] = []
    value = body
    for number, step in enumerate(path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step in range(len(value)):
            value = value[int(step)]
        elif kind != "missing" or number < len(path) - 1:
            continue
        steps.append(step)
    return steps


def _fault(where: str, path: Sequence[str], errors: Sequence[Mapping[str, Any]]) -> Fault:
    if where == "body":
        return Fault(detail=_fault_text("/".join(path) or "The body", errors), pointer=json_pointer(path))
    name = ".".join(path) or where
    return Fault(detail=_fault_text(name, errors), parameter=name)


def _fault_text(location: str, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong with one value.

    If it has the type of one alternative, that is what this alternative lacks; else all that it may be.
    """
    name = location if len(location) <= LONGEST_NAME else f"{location[:LONGEST_NAME]}..."
    same_kind = [error for error in errors if not is_of_another_kind(error["type"])]
    texts = list(dict.fromkeys(_error_text(error) for error in same_kind[:1] or errors))
    if all(text.startswith(MUST_BE) for text in texts):
        return f"{name} {MUST_BE}{' or '.join(text.removeprefix(MUST_BE) for text in texts)}"
    return f"{name}{texts[0]}" if texts[0].startswith(":") else f"{name} {texts[0]}"


def _error_text(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, as the words after its name."""
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return ": there is no such field here; see /api/v2/docs for those there are"
        case "json_invalid":
            return f"is no JSON: {context.get('error', error['msg'])}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return pydantic_words(error["type"], context) or f": {message[:1].lower()}{message[1:]}"
