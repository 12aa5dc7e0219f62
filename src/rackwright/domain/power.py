"""The sleep of nodes that have nothing left to do: what the flag powersave leads to."""

from enum import StrEnum


class Sleep(StrEnum):
    """Where a node is on its way to sleep and back; one that is awake is in none of these. Only append."""

    FALLING = "falling"
    """Nothing starts on it any more; its power is to be cut."""
    ASLEEP = "asleep"
    WAKING = "waking"
    """There is work for it: its power is to be switched on, and it must report its boot."""
