"""Routes for machines that have no system yet: boot scripts, the secret of an install, and files of images.

Anybody may call them: they are bounded and rate-limited, and give nothing away but what to boot. A MAC or UUID finds a
node here, and proves nothing.
"""

import io
import logging
import re
import secrets
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from rackwright.api.auth.limits import Source
from rackwright.api.context import Server
from rackwright.api.http.ranges import send_range
from rackwright.domain.architectures import Architecture, architecture_of_grub
from rackwright.domain.errors import NotFound
from rackwright.domain.names import check_mac, check_uuid
from rackwright.provision.grub import render_first_grub_script, render_grub_script
from rackwright.provision.images.chunks import Chunk
from rackwright.provision.images.cpio import Cpio
from rackwright.provision.images.shelf import NoImage
from rackwright.provision.ipxe import FIRST_SCRIPT, render_ipxe_script
from rackwright.provision.network_boot import NetworkBoot, plan_network_boot
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.machines import boot, install_attempts
from rackwright.store.machines.nodes import find_node

log = logging.getLogger(__name__)

router = APIRouter(tags=["boot"])

AMD64 = Architecture.AMD64
"""What a boot loader runs on that does not say it."""
GrubCpu = Annotated[
    str,
    Query(
        description="GRUB's variable `grub_cpu`.", examples=[architecture.grub_name for architecture in Architecture]
    ),
]
SECRET_FILE = "rackwright/secret"  # noqa: S105  # where it is put, not what it is


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


async def _find_machine(session: Session, machine: str) -> int | None:
    """Return the node with this MAC or UUID, if there is one."""
    if ":" in machine or machine.count("-") == 5:
        return await find_node(session, [check_mac(machine)])
    return await find_node(session, [], check_uuid(machine))


BYTES = "application/octet-stream"


def _response_docs(media_type: str, *statuses: int) -> dict[str, Any]:
    """Return how the OpenAPI document describes a response that is no JSON."""
    response = {"description": "What was asked for.", "content": {media_type: {"schema": {"type": "string"}}}}
    return {"response_class": Response, "responses": dict.fromkeys((200, *statuses), response)}


@router.get("/boot.ipxe", **_response_docs("text/plain"))
async def get_first_boot_script(source: Source) -> Response:
    """Ask again, by name."""
    return Response(FIRST_SCRIPT, media_type="text/plain")


@router.head("/grub/grub.cfg", include_in_schema=False)
@router.get("/grub/grub.cfg", **_response_docs("text/plain"))
async def get_first_grub_script(request: Request, source: Source, host: Annotated[str, Header()]) -> Response:
    """The script that GRUB reads first, for firmware that boots by HTTP: ask again, by name."""
    return Response(render_first_grub_script(_asked_host(request, host)), media_type="text/plain")


@router.get("/boot/{machine}", **_response_docs("text/plain"))
async def get_boot_script(request: Request, source: Source, machine: str, host: Annotated[str, Header()]) -> Response:
    """What a machine that asks now, by MAC or UUID, should boot: an iPXE script from the database as it is."""
    script = render_ipxe_script(await _plan_boot(request, machine, host))
    return Response(script, media_type="text/plain")


@router.head("/boot/{machine}/grub.cfg", include_in_schema=False)
@router.get("/boot/{machine}/grub.cfg", **_response_docs("text/plain"))
async def get_grub_script(
    request: Request, source: Source, machine: str, host: Annotated[str, Header()], cpu: GrubCpu = AMD64.grub_name
) -> Response:
    """The same as a script for GRUB."""
    planned = await _plan_boot(request, machine, _asked_host(request, host), architecture_of_grub(cpu))
    return Response(render_grub_script(planned), media_type="text/plain")


async def _plan_boot(request: Request, machine: str, host: str, architecture: Architecture = AMD64) -> NetworkBoot:
    server = _server(request)
    async with server.store.read() as session:
        answer = await boot.read_boot_answer(session, await _find_machine(session, machine))
    return plan_network_boot(answer.bootenv, machine, host, server.kernel_arguments, answer.disk_mark, architecture)


def _asked_host(request: Request, host: str) -> str:
    """Return how a machine reaches this server: by what it asked for, and the port it came to if it does not name it.

    GRUB leaves out the port.
    """
    has_port = re.search(r":[0-9]+$", host) and not host.endswith("]") and (host.count(":") == 1 or "]:" in host)
    address = request.scope.get("server")
    return host if has_port or address is None or address[1] in (None, 80) else f"{host}:{address[1]}"


class SecretResponse(Response):
    """The secret of an install, sent within the transaction that records it as handed out.

    Whenever the server ends, the install goes on: before the record the machine may fetch another secret, and the one
    that it may have is worthless. Recorded first, a secret would be lost with the server, and there is no second one.
    """

    def __init__(self, request: Request, source: str, machine: str, render: Callable[[str], bytes]) -> None:
        super().__init__()
        self._server = _server(request)
        self._source = source
        self._machine = machine
        self._render = render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        secret, is_sent = secrets.token_urlsafe(32), False

        async def work(session: Session) -> bool:
            nonlocal is_sent
            node_id = await _find_machine(session, self._machine)
            has_network = not self._server.simulates
            if node_id is None or not await install_attempts.hand_out_secret(
                session, node_id, self._source, secret, has_network=has_network
            ):
                return False
            if not is_sent:  # the transaction may be tried again
                is_sent = True
                await Response(self._render(secret), media_type=BYTES)(scope, receive, send)
            return True

        try:
            is_handed_out = await self._server.store.change(work, actor=f"boot {self._source}")
        except DATABASE_TROUBLE as error:
            if not is_sent:
                raise
            log.warning("the secret of an install was sent to %s and not recorded: %s", self._source, first_line(error))
            return
        if not is_handed_out:
            raise NotFound("install under way for", self._machine)


@router.get("/boot/{machine}/secret", **_response_docs(BYTES))
async def get_install_secret(request: Request, source: Source, machine: str) -> Response:
    """The secret of an install, for its installer: handed out once."""
    return SecretResponse(request, source, machine, str.encode)


@router.get("/boot/{machine}/secret.cpio", **_response_docs(BYTES))
async def get_install_secret_archive(request: Request, source: Source, machine: str) -> Response:
    """The same as an archive that the kernel unpacks: the extra initrd file of an installer."""
    return SecretResponse(request, source, machine, _pack_secret)


def _pack_secret(secret: str) -> bytes:
    out = io.BytesIO()
    archive = Cpio(out)
    archive.file(SECRET_FILE, secret.encode() + b"\n", 0o600)
    archive.close()
    return out.getvalue()


@router.head("/boot/{machine}/secret.cpio", include_in_schema=False)
async def announce_install_secret(source: Source) -> Response:
    """Answer GRUB that came by HTTP, which asks for the head of each file before the file: no secret is handed out."""
    return Response(media_type="application/octet-stream")


@router.head("/files/{image}/{file}", include_in_schema=False)
@router.get("/files/{image}/{file}", **_response_docs(BYTES, 206))
async def get_image_file(request: Request, source: Source, image: str, file: str) -> Response:
    """A file of an image, whole or in parts. Its digest is its entity tag."""
    shelf = _server(request).shelf
    try:
        entry = shelf.file(image, file)
    except NoImage:
        raise NotFound("file", f"{_printable(image)}/{_printable(file)}") from None
    headers = {"ETag": f'"sha256-{entry.sha256}"', "X-Content-SHA256": entry.sha256}
    if entry.chunks or "range" in request.headers:
        return send_range(request, entry.size, lambda first, end: shelf.read(entry, first, end), headers)
    return FileResponse(entry.path, media_type="application/octet-stream", headers=headers)


@router.get("/chunks/{sha256}", **_response_docs(BYTES, 206))
async def get_chunk(request: Request, source: Source, sha256: str) -> Response:
    """A piece of an image by its digest, which is what an installer checks it against."""
    chunks = _server(request).shelf.chunks
    path = chunks.path(sha256)
    if path is None:
        raise NotFound("chunk", _printable(sha256))
    headers = {"ETag": f'"sha256-{sha256}"'}
    if "range" in request.headers:
        chunk = Chunk(path.stat().st_size, sha256)
        return send_range(request, chunk.size, partial(chunks.read, [chunk]), headers)
    return FileResponse(path, media_type="application/octet-stream", headers=headers)


def _printable(name: str) -> str:
    """Return a name shortened, with odd characters replaced, to be shown in an error."""
    return re.sub(r"[^A-Za-z0-9._-]", "?", name[:64])
