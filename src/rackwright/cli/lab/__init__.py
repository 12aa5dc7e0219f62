"""`rackwright demo` and `rackwright lab`: machines that are not real, and a server for them, on this machine alone.

Used by `cli.main`. These commands must never reach a machine that is not of their own lab.
"""
