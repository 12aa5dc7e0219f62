"""The way to the server, and how what it says reaches the person: a table, JSON, or one sentence of error."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import httpx

from rackwright.home import default_home

PAGE = 1000
DEFAULT_URL = "http://127.0.0.1:8090"


class Client:
    """Calls of the API with this person's token."""

    def __init__(self) -> None:
        self.url = os.environ.get("RACKWRIGHT_URL", DEFAULT_URL).rstrip("/")
        self._http = httpx.Client(base_url=f"{self.url}/api/v2", timeout=60, trust_env=False)
        self._http.headers["Authorization"] = f"Bearer {_token()}"

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        try:
            answer = self._http.request(
                method, path, json=body, params={key: value for key, value in query.items() if value is not None}
            )
        except httpx.TransportError as error:
            fail(f"The server at {self.url} does not answer ({error}). Start it: rackwright server")
        if answer.is_success:
            return answer.json() if answer.content else None
        fail(_reason(answer))

    def list(self, path: str, **query: Any) -> list[Any]:
        """All of a list, page by page."""
        items: list[Any] = []
        cursor: str | None = None
        while True:
            page = self.call("GET", path, limit=PAGE, cursor=cursor, **query)
            items += page["items"]
            cursor = page["next"]
            if cursor is None:
                return items


def _reason(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
    except ValueError:
        return f"The server answered {answer.status_code} without saying why."
    return str(problem.get("detail") or problem.get("title") or answer.status_code)


def _token() -> str:
    given = os.environ.get("RACKWRIGHT_TOKEN")
    if given:
        return given
    file = default_home() / "admin-token"
    try:
        return file.read_text().strip()
    except OSError:
        fail(f"No token: set RACKWRIGHT_TOKEN, or run this where the server keeps {file}.")


def fail(message: str) -> NoReturn:
    print(f"rackwright: {message}", file=sys.stderr)
    sys.exit(1)


def show(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], columns: Iterable[str], as_json: bool) -> None:
    """Print rows as a table, or all there is to know as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    listed = [rows] if isinstance(rows, Mapping) else rows
    table = Table(box=None, header_style="bold", pad_edge=False)
    names = list(columns)
    for name in names:
        table.add_column(name.upper().replace("_", " "))
    for row in listed:
        table.add_row(*(_cell(row.get(name)) for name in names))
    Console(soft_wrap=True).print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
