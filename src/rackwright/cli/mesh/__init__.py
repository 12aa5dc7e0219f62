"""`rackwright mesh` and `rackwright agent`: a cluster of servers made, looked at and used from the command line.

Used by `cli.main`. These commands must never speak to the control plane.
"""
