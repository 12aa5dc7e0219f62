"""The noderole graph as stored: deployments, snapshots, binding, commits, and moving noderoles between states.

Used by the annealer and the API. It must never talk to a machine or wait for anything but the database.
"""
