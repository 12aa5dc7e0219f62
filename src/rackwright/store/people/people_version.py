"""Telling this process that somebody may do more or less than before: what it remembers of people is to be looked up
again."""

from rackwright.store.db.session import Session


def people_changed(session: Session) -> None:
    """Note that somebody may do more or less once this transaction is committed."""
    session.after_commit.append(session.store.forget_people)
