"""Start and stop of a server: `serve` runs it until SIGTERM or SIGINT.

What a server consists of is in `composition.py`, what it does by itself in `background_work.py`, and how it listens in
`listener.py`.
"""

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from rackwright.annealer.supervision import Supervisor
from rackwright.api.app import create_app
from rackwright.server.composition import running_server
from rackwright.server.first_admin import PASSWORD_FILE, TOKEN_FILE
from rackwright.server.host_name import host_name
from rackwright.server.listener import HttpServer, bound_socket, connection_limits, listener_url, make_http_server
from rackwright.server.running_servers import announced, local_url
from rackwright.server.settings import Options
from rackwright.server.tls import choose_certificate, keep_certificate_fresh


async def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then end in order: answers first, then what runs is handed back."""
    with _StopSignals() as signals:
        try:
            await _serve(options, signals)
        except asyncio.CancelledError:
            if not signals.received:
                raise


async def _serve(options: Options, signals: "_StopSignals") -> None:
    # Settings that may be refused come before anything is started.
    certificate = choose_certificate(options, host_name())
    tls = None if certificate is None else certificate.context()
    password_file = options.home / PASSWORD_FILE
    had_password = password_file.exists()
    with bound_socket(options.host, options.port) as listener:
        async with running_server(options) as server, renewing_certificate(tls, options, server.supervisor):
            if not had_password and password_file.exists():
                # Once, to the person who starts the server for the first time, and to no log.
                _say(f"Log in as admin with {password_file.read_text().strip()} (also in {password_file}).")
            url = listener_url(options.host, listener, tls)
            _say(f"Rackwright on {url}; admin's token in {options.home / TOKEN_FILE}")
            if certificate is not None:
                _say(f"Its certificate has the SHA-256 fingerprint {certificate.fingerprint}")
            http_server = make_http_server(create_app(server), tls, connection_limits(options), shutdown_seconds=10)
            signals.http_server = http_server
            url_here = local_url("http" if tls is None else "https", options.host, listener.getsockname()[1])
            with announced(options.home, url_here, None if certificate is None else certificate.certificate):
                await http_server.serve(sockets=[listener])


class _StopSignals:
    """What SIGTERM and SIGINT do within the block.

    The first one ends a start that is under way, or stops serving. A second SIGINT no longer waits for answers.
    """

    def __init__(self) -> None:
        self.received = False
        self.http_server: HttpServer | None = None
        """Set once the server serves; before that, a signal cancels the start."""
        self._task = asyncio.current_task()

    def __enter__(self) -> "_StopSignals":
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._stop, True)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _stop(self, in_a_hurry: bool = False) -> None:
        again, self.received = self.received, True
        if self.http_server is not None:
            self.http_server.should_exit = True
            self.http_server.force_exit |= again and in_a_hurry
        elif not again and self._task is not None:
            self._task.cancel()


@asynccontextmanager
async def renewing_certificate(
    tls: ssl.SSLContext | None, options: Options, supervisor: Supervisor
) -> AsyncIterator[None]:
    """Take up new certificates within the block. Supervised: a defect there is logged, counted and shown."""
    if tls is None:
        yield
        return
    renew = partial(keep_certificate_fresh, tls, options, host_name())
    task = asyncio.create_task(supervisor.keep_running("certificate", renew), name="certificate")
    try:
        yield
    finally:
        task.cancel()


def _say(line: str) -> None:
    """Print a line for the person who started the server."""
    print(line, file=sys.stderr)  # noqa: T201
