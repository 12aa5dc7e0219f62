"""What an install would do to one machine: its disks, its network, its files. Pure.

Used by plans, which show it, and by the jig of installs, which freezes it into the attempt. It must never know the
database, nor touch a machine.
"""
