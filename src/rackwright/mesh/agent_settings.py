"""The settings of one agent, which people write into `agent.yml` beside its identity.

They are read and checked here, and used in `mesh/agent/agent.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig, non_default_settings, read_config
from rackwright.mesh.errors import BadSettings
from rackwright.mesh.identity.authority import LIFE
from rackwright.mesh.identity.server_identity import checked_name
from rackwright.private_files import write_private_file

FILE = "agent.yml"
KNOWN_SETTINGS = frozenset(
    {"name", "bind", "advertise", "seeds", "labels", "metrics", "checks", "swim", "ca_passphrase_file"}
    | {"certificate_hours", "datastore"}
)


@dataclass(frozen=True)
class Settings:
    """The settings of one agent."""

    name: str
    bind: Address
    advertise: Address
    seeds: tuple[Address, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    metrics: Address | None = None
    checks: tuple[Mapping[str, Any], ...] = ()
    """As written in the file; `mesh/health/health_checks.py` reads them."""
    swim: dict[str, Any] = field(default_factory=dict)
    """Protocol settings that differ from the defaults."""
    ca_passphrase_file: Path | None = None
    certificate_life: timedelta = LIFE
    datastore: DatastoreConfig = field(default_factory=DatastoreConfig)


def load(folder: Path) -> Settings:
    """Read the settings in a folder, or raise BadSettings."""
    path = folder / FILE
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError as problem:
        raise BadSettings(
            f"there is no {path}; make a cluster with: rackwright mesh init, or enter one with: rackwright mesh join"
        ) from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise BadSettings(f"{path} is not YAML: {problem}") from problem
    if not isinstance(content, dict):
        raise BadSettings(f"{path} must hold settings by name, such as bind: 0.0.0.0:7946")
    unknown = sorted(set(content) - KNOWN_SETTINGS)
    if unknown:
        raise BadSettings(
            f"{path} has an unknown setting {unknown[0]!r}; the known ones are {', '.join(sorted(KNOWN_SETTINGS))}"
        )
    try:
        return _read_settings(content)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BadSettings(f"{path} cannot be used: {type(problem).__name__} {problem}") from problem


def save(folder: Path, settings: Settings) -> None:
    """Write the settings into a folder; those that are optional and have their default are left out."""
    content: dict[str, Any] = {
        "name": settings.name,
        "bind": str(settings.bind),
        "advertise": str(settings.advertise),
        "seeds": [str(seed) for seed in settings.seeds],
        "labels": settings.labels,
        "checks": [dict(check) for check in settings.checks],
    }
    if settings.metrics:
        content["metrics"] = str(settings.metrics)
    if settings.swim:
        content["swim"] = settings.swim
    if settings.ca_passphrase_file:
        content["ca_passphrase_file"] = str(settings.ca_passphrase_file)
    if settings.certificate_life != LIFE:
        content["certificate_hours"] = settings.certificate_life / timedelta(hours=1)
    if datastore := non_default_settings(settings.datastore):
        content["datastore"] = datastore
    write_private_file(folder / FILE, yaml.safe_dump(content, sort_keys=False).encode())


def _read_settings(content: dict[str, Any]) -> Settings:
    advertise = parse_address(content["advertise"])
    passphrase = content.get("ca_passphrase_file")
    return Settings(
        name=checked_name(content["name"]),
        bind=parse_address(content.get("bind", str(advertise))),
        advertise=advertise,
        seeds=tuple(parse_address(seed) for seed in content.get("seeds") or ()),
        labels={str(key): str(value) for key, value in (content.get("labels") or {}).items()},
        metrics=parse_address(content["metrics"]) if content.get("metrics") else None,
        checks=tuple(dict(check) for check in content.get("checks") or ()),
        swim=dict(content.get("swim") or {}),
        ca_passphrase_file=Path(passphrase) if passphrase else None,
        certificate_life=timedelta(hours=float(content["certificate_hours"]))
        if "certificate_hours" in content
        else LIFE,
        datastore=read_config(content.get("datastore") or {}),
    )
