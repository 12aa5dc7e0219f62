"""The application: its routes, and how errors become problem details."""

import logging

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from rackwright import __version__
from rackwright.api import anneal, deployments, hook_calls, machines, networks, node_roles, nodes
from rackwright.api.context import Server
from rackwright.api.limits import Bucket
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.store.session import UNREACHABLE, first_line

log = logging.getLogger(__name__)

PREFIX = "/api/v2"


def create_app(server: Server) -> FastAPI:
    app = FastAPI(
        title="Rackwright", version=__version__, openapi_url=f"{PREFIX}/openapi.json", docs_url=f"{PREFIX}/docs"
    )
    app.state.server = server
    app.state.public_bucket = Bucket(rate=50, burst=500)
    for module in (machines, nodes, deployments, node_roles, anneal, hook_calls, networks):
        app.include_router(module.router, prefix=PREFIX)
    app.include_router(machines.boot_router)
    app.add_exception_handler(RackwrightError, _problem)
    for trouble in set(UNREACHABLE) - {OSError}:  # a file that is missing is no matter of the database
        app.add_exception_handler(trouble, _unreachable)
    app.get("/healthz", include_in_schema=False)(healthz)
    return app


async def healthz() -> dict[str, str]:
    """The process is there and answers. Nothing else is said to a stranger."""
    return {"status": "ok"}


class Unreachable(RackwrightError):
    """The database does not answer now. Try again in a moment."""

    status = 503
    type = "database-unreachable"


async def _unreachable(request: Request, error: Exception) -> JSONResponse:
    log.warning("%s %s: the database does not answer: %s", request.method, request.url.path, first_line(error))
    return await _problem(request, Unreachable())


async def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RackwrightError)
    body: dict[str, object] = {
        "type": f"urn:rackwright:problem:{error.type}",
        "title": error.type.replace("-", " ").capitalize(),
        "status": error.status,
        "detail": error.message,
    }
    if isinstance(error, Invalid) and error.pointer:
        body["pointer"] = error.pointer
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return JSONResponse(body, error.status, headers, media_type="application/problem+json")
