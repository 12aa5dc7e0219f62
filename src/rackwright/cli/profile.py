"""Which server a command speaks to, and as whom: the environment, else what `rackwright login` kept, else the server on
this very host."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rackwright.home import default_home

DEFAULT_URL = "http://127.0.0.1:8090"
LOCAL_TOKEN = "admin-token"  # noqa: S105  # the name of the file in which a server keeps its first token


@dataclass(frozen=True)
class Profile:
    url: str
    token: str
    ca: str | None = None
    """The file with the certificates to trust, where the server's own is not known to the system."""
    source: str = ""
    """Where this came from, for people."""


def profile_file(environment: Mapping[str, str] = os.environ) -> Path:
    config = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not config.is_absolute():
        config = Path.home() / ".config"
    return config / "rackwright" / "login.json"


def current_profile(environment: Mapping[str, str] = os.environ) -> Profile | None:
    """The first that has a token; None: nobody is logged in here."""
    kept = _kept(environment)
    url = environment.get("RACKWRIGHT_URL") or (kept.url if kept else DEFAULT_URL)
    ca = environment.get("RACKWRIGHT_CA") or (kept.ca if kept else None)
    if token := environment.get("RACKWRIGHT_TOKEN"):
        return Profile(url.rstrip("/"), token, ca, "the environment")
    if kept is not None and kept.url == url.rstrip("/"):
        return Profile(kept.url, kept.token, ca, str(profile_file(environment)))
    return _local(url, ca, environment)


def _kept(environment: Mapping[str, str]) -> Profile | None:
    try:
        found = json.loads(profile_file(environment).read_text())
        return Profile(found["url"], found["token"], found["ca"])
    except (OSError, ValueError, KeyError):
        return None


def _local(url: str, ca: str | None, environment: Mapping[str, str]) -> Profile | None:
    file = default_home(environment) / LOCAL_TOKEN
    try:
        return Profile(url.rstrip("/"), file.read_text().strip(), ca, str(file))
    except OSError:
        return None


def keep(profile: Profile, environment: Mapping[str, str] = os.environ) -> Path:
    """Remember a login. The file is readable by its owner alone from its first byte on."""
    file = profile_file(environment)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump({key: value for key, value in asdict(profile).items() if key != "source"}, out)
    fresh.replace(file)
    return file


def forget(environment: Mapping[str, str] = os.environ) -> bool:
    file = profile_file(environment)
    there = file.exists()
    file.unlink(missing_ok=True)
    return there
