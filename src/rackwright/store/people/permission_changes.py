"""Note that permissions changed, so that this process reads again what it had cached of them."""

from rackwright.store.db.session import Session


def note_permission_change(session: Session) -> None:
    """Make cached permissions stale once this transaction is committed: a person may do more or less then."""
    session.after_commit.append(session.store.forget_permissions)
