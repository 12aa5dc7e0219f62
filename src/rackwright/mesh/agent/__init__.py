"""The composition root of a server of the mesh: the agent that builds all parts, and the handlers of requests to it.

Used by `rackwright agent` alone. No other package of the mesh may import it.
"""
