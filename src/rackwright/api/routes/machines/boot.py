"""What machines fetch before they have a system: boot scripts, the secret of an install, and files of images.

All of it is for strangers: bounded, rate-limited, and it gives nothing away but what to boot. A MAC or UUID finds a
node here, and proves nothing.
"""

import io
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import FileResponse

from rackwright.api.auth.limits import Source
from rackwright.api.context import Server
from rackwright.domain.errors import NotFound
from rackwright.domain.names import check_mac, check_uuid
from rackwright.provision.images.cpio import Cpio
from rackwright.provision.images.shelf import NoImage
from rackwright.provision.ipxe import boot_script
from rackwright.store.db.session import Session
from rackwright.store.machines import boot, install_attempts
from rackwright.store.machines.nodes import find_node

router = APIRouter(tags=["boot"])

SECRET_FILE = "rackwright/secret"  # noqa: S105  # where it is put, not what it is
FIRST = "#!ipxe\nchain /boot/${netX/mac:hexhyp} || reboot\n"
"""For DHCP servers that can name only one file for all machines."""


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


async def _find(session: Session, machine: str) -> int | None:
    if ":" in machine or machine.count("-") == 5:
        return await find_node(session, [check_mac(machine)])
    return await find_node(session, [], check_uuid(machine))


BYTES = "application/octet-stream"


def _answers(media_type: str, *more: int) -> dict[str, Any]:
    """How the documentation describes an answer that is no JSON."""
    one = {"description": "What was asked for.", "content": {media_type: {"schema": {"type": "string"}}}}
    return {"response_class": Response, "responses": dict.fromkeys((200, *more), one)}


@router.get("/boot.ipxe", **_answers("text/plain"))
async def get_first_boot_script(source: Source) -> Response:
    """Ask again, by name."""
    return Response(FIRST, media_type="text/plain")


@router.get("/boot/{machine}", **_answers("text/plain"))
async def get_boot_script(request: Request, source: Source, machine: str, host: Annotated[str, Header()]) -> Response:
    """What a machine that asks now, by MAC or UUID, should boot: an iPXE script from the database as it is."""
    server = _server(request)
    async with server.store.read() as session:
        bootenv = await boot.boot_answer(session, await _find(session, machine))
    return Response(boot_script(bootenv, machine, host, server.kernel_arguments), media_type="text/plain")


async def _fetch_secret(request: Request, source: str, machine: str) -> str:
    server = _server(request)

    async def work(session: Session) -> str | None:
        node_id = await _find(session, machine)
        if node_id is None:
            return None
        return await install_attempts.fetch_secret(session, node_id, source, has_network=not server.simulates)

    secret = await server.store.change(work, actor=f"boot {source}")
    if secret is None:
        raise NotFound("install under way for", machine)
    return secret


@router.get("/boot/{machine}/secret", **_answers(BYTES))
async def get_install_secret(request: Request, source: Source, machine: str) -> Response:
    """The secret of an install, for its installer: handed out once."""
    return Response(await _fetch_secret(request, source, machine), media_type="application/octet-stream")


@router.get("/boot/{machine}/secret.cpio", **_answers(BYTES))
async def get_install_secret_archive(request: Request, source: Source, machine: str) -> Response:
    """The same as an archive that the kernel unpacks: the extra initrd file of an installer."""
    secret = await _fetch_secret(request, source, machine)
    out = io.BytesIO()
    archive = Cpio(out)
    archive.file(SECRET_FILE, secret.encode() + b"\n", 0o600)
    archive.close()
    return Response(out.getvalue(), media_type="application/octet-stream")


@router.get("/files/{image}/{file}", **_answers(BYTES, 206))
async def get_image_file(request: Request, source: Source, image: str, file: str) -> Response:
    """A file of an image, whole or in parts. Its digest is its entity tag."""
    try:
        found = _server(request).shelf.file(image, file)
    except NoImage:
        raise NotFound("file", f"{_shown(image)}/{_shown(file)}") from None
    headers = {"ETag": f'"sha256-{found.sha256}"', "X-Content-SHA256": found.sha256}
    return FileResponse(found.path, media_type="application/octet-stream", headers=headers)


def _shown(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "?", name[:64])
