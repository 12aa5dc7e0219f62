"""How a node is spoken to: SSH, the local host or the mesh; what is sent there, and what comes back.

Used by jigs and hammers. It must never know the store, nor which role is being worked on.
"""
