"""Compares versions as dpkg and rpm do, and tells whether a version satisfies a condition. Pure functions.

It is done here because `dpkg --compare-versions` would be a process for each package of each state.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from typing import Callable, Dict, List, Tuple

Compare = Callable[[str, str], int]

OPERATORS: Dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


def compare_deb(one: str, other: str) -> int:
    """Return a number < 0, 0 or > 0 if `one` is older than, the same as or newer than `other` (deb-version(7))."""
    for left, right in zip(_split_deb(one), _split_deb(other)):
        order = _compare_part(left, right)
        if order:
            return order
    return 0


def _split_deb(version: str) -> Tuple[str, str, str]:
    epoch, colon, remainder = version.partition(":")
    if not colon:
        epoch, remainder = "0", version
    upstream, dash, revision = remainder.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, remainder, "0")


def _compare_part(left: str, right: str) -> int:
    """Compare runs of non-digits by deb's own alphabet, and runs of digits as numbers, in turn."""
    left_parts, right_parts = re.split(r"(\d+)", left), re.split(r"(\d+)", right)
    for index in range(max(len(left_parts), len(right_parts))):
        left_part, right_part = (
            left_parts[index] if index < len(left_parts) else "",
            right_parts[index] if index < len(right_parts) else "",
        )
        if index % 2:
            order = int(left_part or 0) - int(right_part or 0)
        else:
            keys = _alphabet(left_part), _alphabet(right_part)
            order = (keys[0] > keys[1]) - (keys[0] < keys[1])
        if order:
            return order
    return 0


def _alphabet(text: str) -> List[int]:
    """Return a sort key: `~` before the end of the text, the end before letters, letters before everything else."""
    return [-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in text] + [0]


def compare_rpm(one: str, other: str) -> int:
    """Compare epoch:version-release as rpm does; a release that only one side has does not count."""
    left, right = _split_rpm(one), _split_rpm(other)
    order = _rpmvercmp(left[0], right[0]) or _rpmvercmp(left[1], right[1])
    if order or not left[2] or not right[2]:
        return order
    return _rpmvercmp(left[2], right[2])


def _split_rpm(version: str) -> Tuple[str, str, str]:
    epoch, colon, remainder = version.partition(":")
    if not colon:
        epoch, remainder = "0", version
    number, _, release = remainder.partition("-")
    return epoch, number, release


def _rpmvercmp(one: str, other: str) -> int:
    """Compare runs of digits or letters; `~` is older than all, `^` newer than the end but older than anything more."""
    left, right = re.findall(r"\d+|[a-zA-Z]+|~|\^", one), re.findall(r"\d+|[a-zA-Z]+|~|\^", other)
    for at in range(max(len(left), len(right))):
        a, b = left[at] if at < len(left) else None, right[at] if at < len(right) else None
        if a == b:
            continue
        for special, absent in (("~", 1), ("^", -1)):
            if special in (a, b):
                if a is None or b is None:
                    return absent if a is None else -absent
                return -1 if a == special else 1
        if a is None or b is None:
            return -1 if a is None else 1
        if a.isdigit() and b.isdigit():
            if int(a) != int(b):
                return 1 if int(a) > int(b) else -1
            continue
        if a.isdigit() != b.isdigit():
            return 1 if a.isdigit() else -1
        return 1 if a > b else -1
    return 0


def satisfies(version: str, wanted: str, compare: Compare) -> bool:
    """Return whether `version` satisfies `wanted`: an exact version, a glob (1.2*), or comparisons (>=1.2,<2)."""
    for part in (part.strip() for part in wanted.split(",")):
        sign = next((sign for sign in OPERATORS if part.startswith(sign)), None)
        if sign is not None:
            if not OPERATORS[sign](compare(version, part[len(sign) :].strip()), 0):
                return False
        elif "*" in part or "?" in part:
            if not fnmatch.fnmatchcase(version, part):
                return False
        elif compare(version, part) != 0:
            return False
    return True
