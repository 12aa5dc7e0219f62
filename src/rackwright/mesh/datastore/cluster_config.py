"""The cluster's settings in the datastore, on which all servers must agree: read, checked and changed here.

They override `datastore:` of agent.yml. No setting lets anyone run anything; what does is signed
(`mesh/identity/trust.py`).
"""

import json
from dataclasses import replace
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.datastore.etcd_client import Etcd
from rackwright.mesh.errors import BadRequest, Unreadable

KEY = "/rackwright/config"
KINDS: dict[str, type] = {"count": int, "grace": float, "learner_seconds": float, "event_hours": float}
PREFIX = "datastore."
LARGEST = 1e9
"""More seconds or hours than anybody could want, and few enough to calculate with."""


async def read_settings(etcd: Etcd, deadline: float = 8.0) -> dict[str, Any]:
    """Return the cluster's settings by name."""
    item = await etcd.get(KEY, deadline)
    return {} if item is None else _parse_settings(item.value)


def _parse_settings(value: bytes) -> dict[str, Any]:
    """Return the settings that can be used in a value; it is not signed, so others are left out."""
    try:
        content = read_object(value, "the cluster's configuration")
    except Unreadable:
        return {}
    return {key: value for key, value in content.items() if key in setting_names() and _is_number(key, value)}


def _is_number(key: str, value: Any) -> bool:
    must_be_whole = KINDS[key.removeprefix(PREFIX)] is int
    fits = isinstance(value, int if must_be_whole else (int, float)) and not isinstance(value, bool)
    return fits and 0 <= value <= LARGEST


def setting_names() -> list[str]:
    return [f"{PREFIX}{name}" for name in KINDS]


def apply_overrides(base: DatastoreConfig, config: dict[str, Any]) -> DatastoreConfig:
    """Return the settings of this server with the cluster's on top; the server's own if those make no sense
    together."""
    try:
        return replace(base, **{key.removeprefix(PREFIX): value for key, value in config.items()})
    except (ValueError, TypeError):
        return base


async def change_settings(etcd: Etcd, base: DatastoreConfig, changes: dict[str, str]) -> dict[str, Any]:
    """Change settings and return them all; an empty value takes a setting back. BadRequest if one cannot be used."""
    while True:
        item = await etcd.get(KEY)
        config = {} if item is None else _parse_settings(item.value)
        for key, text in changes.items():
            if key not in setting_names():
                raise BadRequest(f"{key!r} cannot be set for the cluster; this can: {', '.join(setting_names())}")
            config.pop(key, None)
            if text:
                config[key] = _parse_value(key, text)
        try:
            replace(
                base, **{key.removeprefix(PREFIX): value for key, value in config.items() if key in setting_names()}
            )
        except ValueError as problem:
            raise BadRequest(str(problem)) from problem
        if await etcd.replace(KEY, json.dumps(config).encode(), item):
            return config


def _parse_value(key: str, text: str) -> Any:
    kind = KINDS[key.removeprefix(PREFIX)]
    try:
        return kind(text)
    except ValueError as problem:
        raise BadRequest(f"{key} is a number, not {text!r}") from problem
