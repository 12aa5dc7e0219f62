"""cloud-init (NoCloud) on installed systems: what people give it, checked before any machine is touched. Pure.

Used by installs, which refuse what cloud-init would reject, and by the server, which delivers the seed over SSH once
the new system is up. It must never know the database, nor touch a machine. Why so: docs/decisions/0010-cloud-init.md.
"""
