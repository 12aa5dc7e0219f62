"""`rackwright lab`: virtual machines, each with a BMC, on a network of their own, and a server that provisions them.

`lab up` has two processes: this one, which a person sees and talks to, and the lab itself, which is the first process
of namespaces of its own. When either ends, however it ends, the lab is gone, and its files with it.
"""

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.terminal import say
from rackwright.domain.architectures import Architecture, build_command
from rackwright.home import default_home
from rackwright.lab.hardware import Firmware
from rackwright.parent_death import DIES_WITH_US

app = make_app()

LAB_MODULE = ("-m", "rackwright.lab.lab_process")
END_SECONDS = 120.0
"""How long `lab down` waits for the end of the lab."""
NEEDED_PROGRAMS = ("unshare", "setpriv", "ip")


def _record_file() -> Path:
    """Return the file in which a lab that is up is recorded, for `console` and `down`."""
    return default_home() / "lab.json"


@app.command()
def up(
    machines: Annotated[int, typer.Option(min=1, max=32, help="How many virtual machines.")] = 3,
    architecture: Annotated[Architecture, typer.Option(help="Their kind of processor.")] = Architecture.AMD64,
    firmware: Annotated[
        Firmware | None, typer.Option(help="What the machines start with; else BIOS, and UEFI for arm64.")
    ] = None,
    disks: Annotated[int, typer.Option(min=1, max=16, help="Disks a machine, of 8 GiB.")] = 1,
    nics: Annotated[int, typer.Option(min=1, max=8, help="Network cards a machine.")] = 1,
    tpm: Annotated[bool, typer.Option(help="With a TPM 2.0.")] = False,
    ipv6_only: Annotated[bool, typer.Option("--ipv6-only", help="A network without IPv4; needs UEFI.")] = False,
    memory: Annotated[int, typer.Option(min=256, help="MiB a machine; an install needs 1024.")] = 1024,
    port: Annotated[int, typer.Option(help="Port of the server on this host; 0: any that is free.")] = 0,
    power_on: Annotated[bool, typer.Option(help="Switch the machines on.")] = True,
) -> None:
    """Bring a lab up, and keep it until Ctrl-C or `rackwright lab down`."""
    missing = [program for program in NEEDED_PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        _fail(f"A lab needs root{' and ' + ', '.join(missing) if missing else ''}, for namespaces and network devices.")
    images = default_home() / "images"
    if not (images / architecture.sledgehammer).exists():
        command = build_command(architecture.sledgehammer)
        _fail(f"There is no sledgehammer image for {architecture}. Make it: {command} --kernel cloud")
    if firmware is None:
        firmware = Firmware.BIOS if architecture.has_bios else Firmware.UEFI
    if _read_running_lab() is not None:
        _fail("A lab is up already. End it: rackwright lab down")
    with _temporary_folder() as folder, _recorded(folder):
        options = {
            "machines": machines,
            "memory": memory,
            "disks": disks,
            "nics": nics,
            "tpm": tpm,
            "ipv6_only": ipv6_only,
            "firmware": firmware.value,
            "architecture": architecture.value,
            "power_on": power_on,
            "images": str(images),
        }
        raise typer.Exit(asyncio.run(_run_lab(folder, options, port)))


@app.command()
def console(machine: Annotated[int, typer.Argument(help="Its number, from 1.")]) -> None:
    """Talk to a machine's serial line. Ctrl-] ends it; the machine does not notice."""
    lab = _read_running_lab()
    if lab is None:
        _fail("No lab is up. Bring one up: rackwright lab up")
    serial = Path(lab["folder"]) / f"m{machine}" / "serial"
    if not serial.exists():
        _fail(f"The lab has no machine {machine}, or it was never switched on.")
    from rackwright.cli.lab.lab_console import talk

    talk(serial)


@app.command()
def down() -> None:
    """End the lab that is up."""
    lab = _read_running_lab()
    if lab is None:
        say("No lab is up.")
        return
    try:
        process = os.pidfd_open(lab["pid"])
    except ProcessLookupError:
        say("No lab is up.")
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        gone, _, _ = select.select([process], [], [], END_SECONDS)
    finally:
        os.close(process)
    if not gone:
        _fail(f"The lab is still there after {END_SECONDS:g} s. Kill process {lab['pid']}: all of it goes with it.")
    say("The lab is gone.")


def _fail(message: str) -> NoReturn:
    say(f"rackwright: {message}", file=sys.stderr)
    raise typer.Exit(1)


def _start_ticks(pid: int) -> str:
    """Return when a process was started, in the kernel's ticks: number and start identify a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _read_running_lab() -> dict[str, Any] | None:
    """Return the record of the lab that is up; None if there is none."""
    try:
        lab: dict[str, Any] = json.loads(_record_file().read_text())
    except (FileNotFoundError, ValueError):
        return None
    return lab if _start_ticks(lab["pid"]) == lab["started"] else None


@contextlib.contextmanager
def _recorded(folder: Path) -> Iterator[None]:
    """Keep the record of this lab until the end of the block."""
    record = _record_file()
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"pid": os.getpid(), "started": _start_ticks(os.getpid()), "folder": str(folder)}))
    try:
        yield
    finally:
        record.unlink(missing_ok=True)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Give a folder that is removed when this process ends, even if it is killed.

    A child process removes it; the child sees the end of this process as the end of its standard input.
    """
    folder = Path(tempfile.mkdtemp(prefix="rackwright-lab-"))
    script = 'cat >/dev/null; until rm -rf -- "$0" 2>/dev/null; do sleep 0.2; done'
    remover = subprocess.Popen(["sh", "-c", script, str(folder)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield folder
    finally:
        assert remover.stdin is not None
        remover.stdin.close()
        remover.wait()


async def _run_lab(folder: Path, options: dict[str, Any], port: int) -> int:
    """Run the lab in its namespaces, with its server's port on this host's loopback, until a signal or its own end."""
    lab = await asyncio.create_subprocess_exec(
        *(*DIES_WITH_US, "unshare", "--net", "--pid", "--mount", "--fork", "--kill-child"),
        *("--mount-proc", sys.executable, *LAB_MODULE, str(folder), json.dumps(options)),
        stdin=asyncio.subprocess.PIPE,
        # Ctrl-C is for this process alone: the lab's database and machines would take it for themselves.
        start_new_session=True,
    )
    assert lab.stdin is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lab.stdin.close)
    server = await asyncio.start_server(lambda reader, writer: _relay(folder, reader, writer), "127.0.0.1", port)
    async with server:
        say(f"The lab's server: http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        say(f"Its admin's token: {folder / 'home' / 'admin-token'}. Ctrl-C ends the lab.")
        sys.stdout.flush()
        return await lab.wait()


async def _relay(folder: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay a connection from this host to the lab's server."""
    try:
        lab_reader, lab_writer = await asyncio.open_unix_connection(folder / "api")
    except OSError:
        writer.close()
        return
    from rackwright.lab.relay import relay_both_ways

    await relay_both_ways((reader, writer), (lab_reader, lab_writer))
