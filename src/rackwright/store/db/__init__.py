"""The database itself: transactions, tables, migrations, locks, lists, retention and the vault for secrets.

Used by every other package of the store. It must never know what a noderole, a machine or a person is.
"""
