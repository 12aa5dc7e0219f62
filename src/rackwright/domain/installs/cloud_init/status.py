"""What cloud-init of a machine says of itself: `cloud-init status --format json`. A machine's words: bounded, typed."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.machines.install_log import one_line

MOST_REASONS = 5
Hide = Callable[[str], str]
"""Hides secrets in a text. Done before a text is shortened or put on one line: half a secret is not found."""


class CloudInitState(StrEnum):
    PENDING = "pending"
    """It is at work, or about to be."""
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class CloudInitStatus:
    """How far cloud-init of a machine is."""

    state: CloudInitState
    reason: str = ""
    """Why it failed; what it recovered from, if it is done."""


class BadStatus(Exception):
    """An answer is not what cloud-init says."""


def read_status(text: str, hide: Hide) -> CloudInitStatus:
    """Return what an answer of `cloud-init status --format json` says; BadStatus if it says nothing."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise BadStatus(f"cloud-init says {one_line(hide(text))[:200]!r} when it is asked for its status") from None
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, str):
        raise BadStatus("cloud-init does not say its status when it is asked for it")
    errors = _read_reasons(answer.get("errors"), hide)
    recoverable = answer.get("recoverable_errors")
    levels = recoverable.values() if isinstance(recoverable, dict) else ()
    recovered = [reason for reasons in levels for reason in _read_reasons(reasons, hide)]
    if status in ("running", "not run", "not started"):
        return CloudInitStatus(CloudInitState.PENDING)
    if status in ("done", "degraded", "degraded done") and not errors:
        return CloudInitStatus(CloudInitState.DONE, _join(recovered))
    reason = _join(errors or recovered) or "it does not say why: see /var/log/cloud-init.log there"
    return CloudInitStatus(CloudInitState.FAILED, f"its status is {one_line(hide(status))[:40]}: {reason}")


def _read_reasons(value: object, hide: Hide) -> list[str]:
    return [one_line(hide(reason)) for reason in value if isinstance(reason, str)] if isinstance(value, list) else []


def _join(reasons: list[str]) -> str:
    shown = "; ".join(dict.fromkeys(reasons[:MOST_REASONS]))
    return f"{shown}; and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else shown
