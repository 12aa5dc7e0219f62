"""All errors that a person can cause, each with one HTTP status and a stable `type`.

The docstring of an error is its default message. Messages name the object, the rule and the way out.
"""

from enum import StrEnum


class RackwrightError(Exception):
    """Something went wrong."""

    status = 500
    type = "internal"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())

    @property
    def message(self) -> str:
        return str(self.args[0])


class Invalid(RackwrightError):
    """The value does not fit."""

    status = 422
    type = "invalid"

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer
        """JSON pointer to the wrong value, where there is a document to point into."""


class BarclampInvalid(Invalid):
    """The barclamp file is wrong."""

    type = "barclamp-invalid"

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.file = file
        self.line = line
        self.reason = message


class NotFound(RackwrightError):
    """There is no such thing."""

    status = 404
    type = "not-found"

    def __init__(self, kind: str, name: object) -> None:
        super().__init__(f"There is no {kind} {name!r}.")
        self.kind = kind


class NotPermitted(RackwrightError):
    """Your role does not allow this."""

    status = 403
    type = "forbidden"


class DigestRequired(RackwrightError):
    """This loses data. Look at what it does, and send the digest of what you saw."""

    status = 428
    type = "digest-required"


class Rule(StrEnum):
    """The rules whose breach is a conflict (409). The value is part of the problem's `type`: only append."""

    UNRESOLVED = "unresolved-requires"
    ABSTRACT = "abstract-role"
    JIG_INACTIVE = "inactive-jig"
    CONFLICTS = "conflicting-roles"
    PROVIDES_SAME_NODE = "provides-on-same-node"
    PROVIDES_LINEAGE = "provides-in-lineage"
    CYCLE = "cycle"
    ORPHANS = "orphans-dependant"
    DESTRUCTIVE_ON_ADMIN = "destructive-on-admin-node"
    PROPOSED_ELSEWHERE = "proposed-elsewhere"
    NODE_ELSEWHERE = "node-in-other-deployment"
    PHANTOM = "phantom-node"
    SYSTEM = "system-deployment"
    NOT_PROPOSED = "nothing-proposed"
    PROPOSAL_EXISTS = "proposal-exists"
    PLAN_CHANGED = "plan-changed"
    NOTHING_COMMITTED = "nothing-committed"
    NOT_RETRYABLE = "not-retryable"
    DESTRUCTIVE = "destructive-already-ran"
    BUSY = "busy"
    BOUND = "still-bound"
    EXISTS = "already-exists"
    HAS_CHILDREN = "has-children"
    LAST_ADMIN = "last-admin-node"
    REFUSED = "refused-by-hook"
    COMMITTED = "snapshot-committed"
    BARCLAMP = "barclamp-conflict"
    LAST_ADMIN_USER = "last-admin-user"
    KEY_OFFERED = "key-offered"
    ADMIN_NAME = "admin-name"


class Conflict(RackwrightError):
    """The request breaks a rule of the model."""

    status = 409

    def __init__(self, rule: Rule, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.type = rule.value


class PlanChanged(Conflict):
    """What the caller saw and confirmed is no longer what would be done. Nothing was touched."""

    status = 412

    def __init__(self, message: str) -> None:
        super().__init__(Rule.PLAN_CHANGED, message)
