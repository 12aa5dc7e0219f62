"""Membership of the cluster, and which members are alive: SWIM with Lifeguard's refinements, and its wire format.

Used by the agent and by the simulated cluster. Pure: no I/O, no clock; it must never know the datastore or runs.
"""
