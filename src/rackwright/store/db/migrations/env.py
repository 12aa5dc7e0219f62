"""What Alembic runs for each of its commands. There is always a connection: `rackwright.store.db.migrate` makes it."""

from collections.abc import Iterable
from typing import TypeGuard

from alembic import context
from alembic.operations.ops import CreateForeignKeyOp, CreateTableOp, MigrationScript
from alembic.runtime.migration import MigrationContext
from sqlalchemy import ForeignKeyConstraint, text

from rackwright.store.db.tables import metadata


def add_late_foreign_keys(
    _: MigrationContext, __: str | Iterable[str | None] | Iterable[str], scripts: list[MigrationScript]
) -> None:
    """For tables that refer to each other: Alembic writes such a key into CREATE TABLE, where it is then left out."""
    for script in scripts:
        assert script.upgrade_ops is not None
        late = []
        for step in script.upgrade_ops.ops:
            if isinstance(step, CreateTableOp):
                late += [CreateForeignKeyOp.from_constraint(part) for part in step.columns if is_late_key(part)]
                step.columns = [part for part in step.columns if not is_late_key(part)]
        script.upgrade_ops.ops.extend(late)


def is_late_key(part: object) -> TypeGuard[ForeignKeyConstraint]:
    return isinstance(part, ForeignKeyConstraint) and part.use_alter


def settle_constraints(ctx: MigrationContext, *_: object, **__: object) -> None:
    """After each revision: what one changed is checked before the next alters the table, which PostgreSQL refuses
    while something is still to be checked. All of them are one transaction."""
    assert ctx.connection is not None
    ctx.connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
    ctx.connection.execute(text("SET CONSTRAINTS ALL DEFERRED"))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_type=True,
    # Alembic takes two defaults whose value is NULL for different; the tests compare them by their text.
    compare_server_default=False,
    user_module_prefix="tables.",  # what the template of a revision imports
    process_revision_directives=add_late_foreign_keys,
    on_version_apply=settle_constraints,
)
with context.begin_transaction():
    context.run_migrations()
