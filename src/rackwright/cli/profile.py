"""Which server a command speaks to, and as whom: the one that is named, else the one that `rackwright login` kept, else
the server that runs on this very host."""

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
    """The access that commands use, and how it was found."""

    source: str = ""
    """Where this came from, for people."""


class NoServer(Exception):
    """There is no server to speak to, or nobody to speak as; the message says what was tried."""


def profile_file(environment: Mapping[str, str] = os.environ) -> Path:
    config = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not config.is_absolute():
        config = Path.home() / ".config"
    return config / "rackwright" / "login.json"


def current_profile(environment: Mapping[str, str] = os.environ) -> Profile:
    """Return the server that commands go to and the token they carry; NoServer says what was tried."""
    kept = kept_profile(environment)
    url = named_url(environment)
    token = environment.get(TOKEN)
    found = _named(url, token, kept, environment) if url else _running(environment, token)
    ca = environment.get(CA)
    return replace(found, ca=ca) if ca else found


def _named(url: str, token: str | None, kept: Profile | None, environment: Mapping[str, str]) -> Profile:
    """A server whose URL is known: the token given, else the one kept for it, else its own home's."""
    ours = [server for server in _homes_servers(environment) if server.url == url]
    ca = kept.ca if kept is not None and kept.url == url else ours[0].ca if ours else None
    if token:
        return Profile(url, token, ca, "the environment")
    if kept is not None and kept.url == url:
        return replace(kept, source=str(profile_file(environment)))
    file = default_home(environment) / TOKEN_FILE
    # The token of this host's server is for nobody else: not for whatever server a URL names.
    if (ours or _is_loopback(url)) and (local := _token_in(file)):
        return Profile(url, local, ca, str(file))
    raise NoServer(
        f"You are not logged in at {shown_url(url)}. Run `rackwright login {shown_url(url)}`, set {TOKEN},"
        " or run this as the user who runs the server."
    )


def _running(environment: Mapping[str, str], token: str | None) -> Profile:
    """The server that runs in this home, else the only one that this user runs."""
    home = default_home(environment)
    servers = _homes_servers(environment)
    if not servers:
        if token:  # it may be another user's, which writes down nothing for us
            return Profile(DEFAULT_URL, token, None, "the environment")
        raise NoServer(_tried(environment, home))
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
    if local := _token_in(file):
        return Profile(server.url, local, server.ca, str(file))
    raise NoServer(
        f"A server runs at {server.url}, but its token cannot be read from {file}. Run `rackwright login {server.url}`."
    )


def _homes_servers(environment: Mapping[str, str]) -> list[RunningServer]:
    here = servers_of_home(default_home(environment))
    return here or ([] if environment.get(HOME) else servers_of_user())


def named_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL that commands go to because somebody said so, now or at login; empty: nobody did."""
    kept = kept_profile(environment)
    return environment.get(URL, "").rstrip("/") or (kept.url if kept else "")


def running_here(environment: Mapping[str, str] = os.environ) -> RunningServer | None:
    """Return the server that commands go to, if this user runs it on this host."""
    url = named_url(environment)
    servers = [server for server in _homes_servers(environment) if url in ("", server.url)]
    return servers[0] if len({server.home for server in servers}) == 1 else None


def _tried(environment: Mapping[str, str], home: Path) -> str:
    looked = f"no server runs in {home}" + ("" if environment.get(HOME) else " or in another home of yours")
    return (
        f"There is no server to speak to: neither --url nor {URL} is given, nobody is logged in"
        f" ({profile_file(environment)}), and {looked}. Start one with `rackwright server`, or choose one with"
        " `rackwright login URL`."
    )


def _token_in(file: Path) -> str:
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


def kept_profile(environment: Mapping[str, str] = os.environ) -> Profile | None:
    """Return what `rackwright login` kept; None: nobody is logged in here."""
    try:
        found = json.loads(profile_file(environment).read_text())
        return Profile(found["url"], found["token"], found["ca"])
    except (OSError, ValueError, KeyError):
        return None


def keep(profile: Profile, environment: Mapping[str, str] = os.environ) -> Path:
    """Remember a login. The file is readable by its owner alone from its first byte on."""
    file = profile_file(environment)
    kept = {key: value for key, value in asdict(profile).items() if key != "source"}
    write_private_file(file, json.dumps(kept).encode())
    return file


def forget(environment: Mapping[str, str] = os.environ) -> bool:
    file = profile_file(environment)
    there = file.exists()
    file.unlink(missing_ok=True)
    return there
