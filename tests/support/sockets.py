"""Sockets as the other side has them, when both sides are in this process."""

import os
import socket
from pathlib import Path


def accepted_socket_of(client: socket.socket) -> socket.socket:
    """Return a copy of the socket that a server in this process accepted from `client`. Close it."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            copy = socket.socket(fileno=os.dup(int(descriptor.name)))
        except OSError:  # closed meanwhile, or no socket
            continue
        try:
            if copy.family == client.family and copy.getpeername() == client.getsockname():
                return copy
        except OSError:  # a socket that listens
            pass
        copy.close()
    raise LookupError(f"Nothing here has accepted {client.getsockname()}.")
