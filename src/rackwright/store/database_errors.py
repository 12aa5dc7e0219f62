"""Errors that tell why the database cannot be used. Each is a message for the operator, never a fault of a request."""

from rackwright.domain.errors import RackwrightError


class DatabaseUnusable(RackwrightError):
    """The database cannot be used."""

    status = 503
    type = "database-unusable"


class EmbeddedPostgresFailed(DatabaseUnusable):
    """The embedded PostgreSQL could not be started or stopped."""


class DatabaseUrlInvalid(DatabaseUnusable):
    """The database URL is not one of PostgreSQL."""


class DatabaseUnreachable(DatabaseUnusable):
    """No PostgreSQL let us in at that URL."""


class DatabaseVersionUnsupported(DatabaseUnusable):
    """The server, or the schema in the database, is of a version this Rackwright does not work with."""


class DatabaseEmpty(DatabaseUnusable):
    """No server has used this database yet."""

    way_out = "Start `rackwright server` first; for one elsewhere give --home or --database-url."
