"""Sealed values: how a secret looks where it is stored, shown or hashed. Sealing and opening are the vault's.

A sealed value carries a fingerprint, so that the same secret is the same input whatever key sealed it.
"""

from rackwright.domain.catalogue import Json

SEAL = "$sealed"
FINGERPRINT = "fingerprint"
MASK = "********"


def is_sealed(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {SEAL, FINGERPRINT}


def carries_seal(value: object) -> bool:
    """Whether an object with the key of a seal lies anywhere in the value.

    What comes from outside must not: only the vault makes seals, so any other one was made up.
    """
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            if SEAL in inner:
                return True
            waiting.extend(inner.values())
        elif isinstance(inner, list | tuple):
            waiting.extend(inner)
    return False


def masked(value: Json) -> Json:
    """The value as people may see it."""
    if isinstance(value, dict):
        return MASK if is_sealed(value) else {key: masked(inner) for key, inner in value.items()}
    return [masked(inner) for inner in value] if isinstance(value, list) else value


def fingerprinted(value: Json) -> Json:
    """The value as it is hashed: of a secret only what does not change when the key does."""
    if isinstance(value, dict):
        if is_sealed(value):
            return {FINGERPRINT: value[FINGERPRINT]}
        return {key: fingerprinted(inner) for key, inner in value.items()}
    return [fingerprinted(inner) for inner in value] if isinstance(value, list) else value
