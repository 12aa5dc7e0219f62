"""Reaching nodes over SSH, on the local host or through the mesh: what is sent to a node, and what comes back.

Used by jigs and hammers. It must never know the store, nor which role is being worked on.
"""
