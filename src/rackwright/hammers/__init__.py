"""Hammers: ways to a machine's power and boot device, and probes of what a machine runs.

Every hammer has the shape of `base.Hammer`. Used by the server, the annealer and the API; never knows the store.
"""
