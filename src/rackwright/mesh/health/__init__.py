"""The health of software on members: checks, how they are made, and the events that tell of it.

Used by the agent. It must never decide who is alive: membership does.
"""
