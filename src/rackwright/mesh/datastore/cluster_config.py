"""The cluster's own configuration, in the datastore: what all servers must agree on, changed in one place.

It overrides `datastore:` of agent.yml. Nothing here lets anyone run anything; what does is signed
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
"""More seconds or hours than anybody could mean, and few enough to calculate with."""


async def read(etcd: Etcd, deadline: float = 8.0) -> dict[str, Any]:
    item = await etcd.get(KEY, deadline)
    return {} if item is None else _usable(item.value)


def _usable(value: bytes) -> dict[str, Any]:
    """The settings that can be used of what lies there; nobody has signed it."""
    try:
        content = read_object(value, "the cluster's configuration")
    except Unreadable:
        return {}
    return {key: value for key, value in content.items() if key in known() and _is_number(key, value)}


def _is_number(key: str, value: Any) -> bool:
    whole = KINDS[key.removeprefix(PREFIX)] is int
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    return fits and 0 <= value <= LARGEST


def known() -> list[str]:
    return [f"{PREFIX}{name}" for name in KINDS]


def overridden(base: DatastoreConfig, config: dict[str, Any]) -> DatastoreConfig:
    """The settings of this server with the cluster's on top; the server's own where those make no sense."""
    try:
        return replace(base, **{key.removeprefix(PREFIX): value for key, value in config.items()})
    except (ValueError, TypeError):
        return base


async def change(etcd: Etcd, base: DatastoreConfig, wishes: dict[str, str]) -> dict[str, Any]:
    """Set what was wished for; an empty value takes a setting back. Refuses what could not be used."""
    while True:
        item = await etcd.get(KEY)
        config = {} if item is None else _usable(item.value)
        for key, text in wishes.items():
            if key not in known():
                raise BadRequest(f"{key!r} cannot be set for the cluster; this can: {', '.join(known())}")
            config.pop(key, None)
            if text:
                config[key] = _value(key, text)
        try:
            replace(base, **{key.removeprefix(PREFIX): value for key, value in config.items() if key in known()})
        except ValueError as problem:
            raise BadRequest(str(problem)) from problem
        if await etcd.replace(KEY, json.dumps(config).encode(), item):
            return config


def _value(key: str, text: str) -> Any:
    kind = KINDS[key.removeprefix(PREFIX)]
    try:
        return kind(text)
    except ValueError as problem:
        raise BadRequest(f"{key} is a number, not {text!r}") from problem
