"""Everything kept in PostgreSQL: the embedded server, tables, migrations, queries and the outbox."""
