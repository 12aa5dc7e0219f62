"""The health of software on members: checks, how they are carried out, and the rules for events about members.

Used by the agent. It must never decide which member is alive: `mesh/membership` does.
"""
