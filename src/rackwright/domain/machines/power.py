"""Rules for power: the sleep of nodes that have nothing to do, and which BMC a password is for."""

from enum import StrEnum

from rackwright.domain.catalogue import Json

PASSWORD = "password"  # noqa: S105  # the key's name, not a secret


class Sleep(StrEnum):
    """The states of a node that sleeps, or goes to sleep or wakes; a node that is awake has none. Only append."""

    FALLING = "falling"
    """No run starts on it any more; its power is to be cut."""
    ASLEEP = "asleep"
    WAKING = "waking"
    """There is work for it: its power is to be switched on, and it must report its boot."""


def has_bmc_login(bmc: Json) -> bool:
    """Return whether the address of a BMC and a user name are set; its kind may be left open."""
    return isinstance(bmc, dict) and bool(bmc.get("address")) and bool(bmc.get("username"))


def with_matching_password(before: Json, after: Json) -> Json:
    """Return the settings of a BMC after a change, without the password if it was set for another target.

    A password is for the BMC it was given for. One that comes with the change itself stays.
    """
    if not isinstance(before, dict) or not isinstance(after, dict) or after.get(PASSWORD) != before.get(PASSWORD):
        return after
    target_before = {key: value for key, value in before.items() if key != PASSWORD}
    target_after = {key: value for key, value in after.items() if key != PASSWORD}
    return after if target_before == target_after else target_after


class PowerOrder(StrEnum):
    """What people have a machine's controller do."""

    STATUS = "status"
    ON = "on"
    OFF = "off"
    RESET = "reset"
    CYCLE = "cycle"
    BOOT_NETWORK = "boot network"
    BOOT_DISK = "boot disk"
