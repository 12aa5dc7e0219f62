"""Sealed values: the form of a secret where it is stored, shown or hashed.

The vault seals and opens them. A sealed value carries a fingerprint, so that the same secret is the same input
whatever key sealed it.
"""

from rackwright.domain.catalogue import Json

SEAL = "$sealed"
FINGERPRINT = "fingerprint"
MASK = "********"


def is_sealed(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {SEAL, FINGERPRINT}


def carries_seal(value: object) -> bool:
    """Return whether the value has an object with the key of a seal at any depth.

    A value from outside must have none: only the vault makes seals, so any other one was made up.
    """
    stack = [value]
    while stack:
        inner = stack.pop()
        if isinstance(inner, dict):
            if SEAL in inner:
                return True
            stack.extend(inner.values())
        elif isinstance(inner, list | tuple):
            stack.extend(inner)
    return False


def masked(value: Json) -> Json:
    """Return the value as people may see it, with a mask in place of each secret."""
    if isinstance(value, dict):
        return MASK if is_sealed(value) else {key: masked(inner) for key, inner in value.items()}
    return [masked(inner) for inner in value] if isinstance(value, list) else value


def fingerprinted(value: Json) -> Json:
    """Return the value as it is hashed: of each secret only the fingerprint, which does not depend on the key."""
    if isinstance(value, dict):
        if is_sealed(value):
            return {FINGERPRINT: value[FINGERPRINT]}
        return {key: fingerprinted(inner) for key, inner in value.items()}
    return [fingerprinted(inner) for inner in value] if isinstance(value, list) else value
