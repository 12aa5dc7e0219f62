"""The settings of the membership protocol. Defaults are memberlist's for a LAN, where it has such a setting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SwimConfig:
    """The settings of one membership machine. Times are in seconds."""

    probe_interval: float = 1.0
    probe_timeout: float = 0.5
    indirect_probes: int = 3
    # How long a relay waits for the target before it sends a nack. Short, because a LAN answers in milliseconds: when
    # every relay has sent one, the prober need not wait for the end of its interval.
    nack_timeout: float = 0.2

    suspicion_multiplier: int = 4
    suspicion_max_multiplier: int = 6
    # How many others, in the mean, probe a suspect at once instead of when its turn comes.
    second_opinions: int = 6
    awareness_max: int = 8

    gossip_interval: float = 0.2
    gossip_nodes: int = 3
    gossip_bytes: int = 1400
    gossip_to_the_dead: float = 30.0
    retransmit_multiplier: int = 4

    sync_interval: float = 30.0
    sync_retry: float = 1.0
    syncs_answered_per_second: int = 20
    # How often a dead member is tried again: else two halves of a healed partition would never meet.
    reconnect_interval: float = 10.0
    gone_retention: float = 24 * 3600.0

    dial_timeout: float = 0.5
    dial_helpers: int = 2
    dial_rounds: int = 3

    # A clock this far past our own deadline means that this process did not run: no other member is to blame for what
    # was missed.
    pause_threshold: float = 0.5

    max_members: int = 20_000
    max_queue: int = 40_000
    max_relays: int = 256
    max_dials: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.nack_timeout <= self.probe_timeout < self.probe_interval:
            raise ValueError(
                "mesh settings: nack_timeout must be at most probe_timeout, and that below probe_interval; got "
                f"{self.nack_timeout}, {self.probe_timeout} and {self.probe_interval}"
            )
        if self.suspicion_multiplier < 1 or self.suspicion_max_multiplier < 1:
            raise ValueError("mesh settings: the suspicion multipliers must be at least 1")
