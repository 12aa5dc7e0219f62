"""What Alembic runs for each of its commands. There is always a connection: `rackwright.store.migrate` makes it."""

from alembic import context

from rackwright.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_type=True,
    compare_server_default=True,
    user_module_prefix="tables.",
)
with context.begin_transaction():
    context.run_migrations()
