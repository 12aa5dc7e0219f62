"""The name of the host that a server runs on."""

import socket


def host_name() -> str:
    """Return this host's full name in small letters; without a domain, it gets `.internal`: nodes need one."""
    name = socket.getfqdn().lower()
    return name if "." in name and not name.startswith("localhost") else f"{socket.gethostname().lower()}.internal"
