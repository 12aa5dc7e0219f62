"""The script that Alembic runs for each of its commands. `rackwright.store.db.migrate` always gives it a connection."""

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
    """Add the foreign keys of tables that refer to each other at the end of a new revision.

    Alembic writes such a key into CREATE TABLE, where it is then left out.
    """
    for script in scripts:
        assert script.upgrade_ops is not None
        late_keys = []
        for step in script.upgrade_ops.ops:
            if isinstance(step, CreateTableOp):
                late_keys += [CreateForeignKeyOp.from_constraint(part) for part in step.columns if is_late_key(part)]
                step.columns = [part for part in step.columns if not is_late_key(part)]
        script.upgrade_ops.ops.extend(late_keys)


def is_late_key(part: object) -> TypeGuard[ForeignKeyConstraint]:
    return isinstance(part, ForeignKeyConstraint) and part.use_alter


def settle_constraints(ctx: MigrationContext, *_: object, **__: object) -> None:
    """Check the deferred constraints after each revision.

    PostgreSQL refuses to alter a table while constraints of it are still to be checked, and all revisions run in one
    transaction: so what a revision changed is checked before the next one alters the table.
    """
    assert ctx.connection is not None
    ctx.connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
    ctx.connection.execute(text("SET CONSTRAINTS ALL DEFERRED"))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_type=True,
    # Alembic takes two defaults whose value is NULL for different; the tests compare them by their text.
    compare_server_default=False,
    user_module_prefix="tables.",  # the name that the template of a revision imports
    process_revision_directives=add_late_foreign_keys,
    on_version_apply=settle_constraints,
)
with context.begin_transaction():
    context.run_migrations()
