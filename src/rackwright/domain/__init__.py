"""The model of Rackwright and its rules: roles, noderoles, runs, networks, machines, people.

Used by every package of the control plane. Pure: no I/O, no clock, no database.
"""
