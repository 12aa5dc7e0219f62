"""Finds the server and the token that a command uses.

The server is the one whose URL is given, else the one of the last `rackwright login`, else the one on this very host.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from rackwright.client.access import TOKEN_FILE, Access
from rackwright.home import default_home
from rackwright.private_files import write_private_file
from rackwright.server.running_servers import RunningServer, servers_of_home, servers_of_user
from rackwright.shown_urls import shown_url

DEFAULT_URL = "http://127.0.0.1:8090"
URL, TOKEN, CA, HOME = "RACKWRIGHT_URL", "RACKWRIGHT_TOKEN", "RACKWRIGHT_CA", "RACKWRIGHT_HOME"


@dataclass(frozen=True)
class Profile(Access):
    """The access to a server that commands use, and its source."""

    source: str = ""
    """Where the token came from, for people."""


class NoServer(Exception):
    """There is no server to speak to, or nobody to speak as; the message says what was tried."""


def profile_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of this user's login."""
    config = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not config.is_absolute():
        config = Path.home() / ".config"
    return config / "rackwright" / "login.json"


def current_profile(environment: Mapping[str, str] = os.environ) -> Profile:
    """Return the server that commands go to and the token they carry; NoServer says what was tried."""
    login = read_login(environment)
    url = chosen_url(environment)
    token = environment.get(TOKEN)
    profile = _profile_of_url(url, token, login, environment) if url else _profile_of_running(environment, token)
    ca = environment.get(CA)
    return replace(profile, ca=ca) if ca else profile


def _profile_of_url(url: str, token: str | None, login: Profile | None, environment: Mapping[str, str]) -> Profile:
    """Return the profile for a URL, with the given token, else that of the login there, else that of the home."""
    own_servers = [server for server in _running_servers(environment) if server.url == url]
    ca = login.ca if login is not None and login.url == url else own_servers[0].ca if own_servers else None
    if token:
        return Profile(url, token, ca, "the environment")
    if login is not None and login.url == url:
        return replace(login, source=str(profile_file(environment)))
    file = default_home(environment) / TOKEN_FILE
    # The token of this host's server is sent to no other server, whichever a URL names.
    if (own_servers or _is_loopback(url)) and (local_token := _read_token(file)):
        return Profile(url, local_token, ca, str(file))
    raise NoServer(
        f"You are not logged in at {shown_url(url)}. Run `rackwright login {shown_url(url)}`, set {TOKEN},"
        " or run this as the user who runs the server."
    )


def _profile_of_running(environment: Mapping[str, str], token: str | None) -> Profile:
    """Return the profile for the server that runs in this home, else for the only one that this user runs."""
    home = default_home(environment)
    servers = _running_servers(environment)
    if not servers:
        if token:  # the server may be another user's, whose files this user does not see
            return Profile(DEFAULT_URL, token, None, "the environment")
        raise NoServer(_no_server_message(environment, home))
    if len({server.home for server in servers}) > 1:
        raise NoServer(
            "Several servers of yours run here: "
            + ", ".join(f"{server.url} ({server.home})" for server in servers)
            + f". Say which with --url, or set {HOME}."
        )
    server = servers[0]
    if token:
        return Profile(server.url, token, server.ca, "the environment")
    file = Path(server.home) / TOKEN_FILE
    if local_token := _read_token(file):
        return Profile(server.url, local_token, server.ca, str(file))
    raise NoServer(
        f"A server runs at {server.url}, but its token cannot be read from {file}. Run `rackwright login {server.url}`."
    )


def _running_servers(environment: Mapping[str, str]) -> list[RunningServer]:
    """Return the servers that run in this home, else, if no home is named, all that this user runs."""
    return servers_of_home(default_home(environment)) or ([] if environment.get(HOME) else servers_of_user())


def chosen_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL that a person chose for commands, now or at login; empty: nobody did."""
    login = read_login(environment)
    return environment.get(URL, "").rstrip("/") or (login.url if login else "")


def local_server(environment: Mapping[str, str] = os.environ) -> RunningServer | None:
    """Return the server that commands go to, if this user runs it on this host."""
    url = chosen_url(environment)
    servers = [server for server in _running_servers(environment) if url in ("", server.url)]
    return servers[0] if len({server.home for server in servers}) == 1 else None


def _no_server_message(environment: Mapping[str, str], home: Path) -> str:
    looked = f"no server runs in {home}" + ("" if environment.get(HOME) else " or in another home of yours")
    return (
        f"There is no server to speak to: neither --url nor {URL} is given, nobody is logged in"
        f" ({profile_file(environment)}), and {looked}. Start one with `rackwright server`, or choose one with"
        " `rackwright login URL`."
    )


def _read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def read_login(environment: Mapping[str, str] = os.environ) -> Profile | None:
    """Return the login that `rackwright login` saved; None: nobody is logged in here."""
    try:
        login = json.loads(profile_file(environment).read_text())
        return Profile(login["url"], login["token"], login["ca"])
    except (OSError, ValueError, KeyError):
        return None


def save_login(profile: Profile, environment: Mapping[str, str] = os.environ) -> Path:
    """Save a login, and return its file, which is readable by its owner alone from its first byte on."""
    file = profile_file(environment)
    login = {key: value for key, value in asdict(profile).items() if key != "source"}
    write_private_file(file, json.dumps(login).encode())
    return file


def delete_login(environment: Mapping[str, str] = os.environ) -> bool:
    """Delete the saved login; return whether there was one."""
    file = profile_file(environment)
    existed = file.exists()
    file.unlink(missing_ok=True)
    return existed
