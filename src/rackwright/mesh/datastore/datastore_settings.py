"""The settings of the datastore: `datastore:` in agent.yml. All servers of a cluster should have the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class DatastoreConfig:
    """The settings of one server's part of the datastore."""

    eligible: bool = True
    """Whether this server may become a datastore."""
    count: int = 3
    """How many servers carry the datastore."""
    grace: float = 30.0
    """How long a datastore server must be gone before another takes over."""
    learner_seconds: float = 60.0
    """How long a new datastore server may take to catch up before the next candidate is tried."""
    lease_seconds: int = 5
    client_port: int = 2379
    peer_port: int = 2380
    etcd: str = "etcd"
    etcdctl: str = "etcdctl"
    snapshot_minutes: float = 15.0
    snapshots_kept: int = 8
    heartbeat_milliseconds: int = 100
    election_milliseconds: int = 1000
    event_hours: float = 24.0
    """How long events and finished runs are kept."""

    def __post_init__(self) -> None:
        if self.count not in (1, 3, 5, 7):
            raise ValueError(f"datastore.count must be 1, 3, 5 or 7, not {self.count}: an even number survives no more")
        if self.grace < 0 or self.learner_seconds <= 0 or self.lease_seconds < 2:
            raise ValueError("datastore: grace, learner_seconds must be positive and lease_seconds at least 2")


def read_config(settings: Mapping[str, Any]) -> DatastoreConfig:
    """Return the configuration with these settings, and defaults for all others. ValueError if one is unknown."""
    names = {field.name for field in fields(DatastoreConfig)}
    unknown = sorted(set(settings) - names)
    if unknown:
        raise ValueError(f"datastore has an unknown setting {unknown[0]!r}; the known ones are {', '.join(names)}")
    return replace(DatastoreConfig(), **settings)


def non_default_settings(config: DatastoreConfig) -> dict[str, Any]:
    """Return the settings that differ from the defaults, as they are written to agent.yml."""
    default = DatastoreConfig()
    return {
        field.name: getattr(config, field.name)
        for field in fields(config)
        if getattr(config, field.name) != getattr(default, field.name)
    }
