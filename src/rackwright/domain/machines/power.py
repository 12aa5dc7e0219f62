"""Power: the sleep of nodes that have nothing left to do, and how a BMC and its password belong together."""

from enum import StrEnum

from rackwright.domain.catalogue import Json

PASSWORD = "password"  # noqa: S105  # the key's name, not a secret


class Sleep(StrEnum):
    """Where a node is on its way to sleep and back; one that is awake is in none of these. Only append."""

    FALLING = "falling"
    """Nothing starts on it any more; its power is to be cut."""
    ASLEEP = "asleep"
    WAKING = "waking"
    """There is work for it: its power is to be switched on, and it must report its boot."""


def has_bmc_login(bmc: Json) -> bool:
    """Whether it is said where a BMC is and who logs in there; what it speaks may be left open."""
    return isinstance(bmc, dict) and bool(bmc.get("address")) and bool(bmc.get("username"))


def with_matching_password(before: Json, after: Json) -> Json:
    """How a BMC is reached after a change. A password is for the BMC it was given for: a changed target drops it."""
    if not isinstance(before, dict) or not isinstance(after, dict) or after.get(PASSWORD) != before.get(PASSWORD):
        return after
    target_before = {key: value for key, value in before.items() if key != PASSWORD}
    target_after = {key: value for key, value in after.items() if key != PASSWORD}
    return after if target_before == target_after else target_after
