"""Who is a member and who is alive: SWIM with Lifeguard's refinements, and the wire format of its messages.

Used by the agent and by the simulated cluster. Pure: no I/O, no clock; it must never know the datastore or runs.
"""
