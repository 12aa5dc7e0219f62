"""The embedded PostgreSQL: its files on disk, the process that keeps it running, and how servers join it.

Used by `store.db.database` and by servers as they start. It must never know a table of ours.
"""
