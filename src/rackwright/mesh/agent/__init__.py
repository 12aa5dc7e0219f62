"""The composition root of one server of the mesh: the agent, what may be asked of it, and its settings.

Used by `rackwright agent` alone. No other package of the mesh may import it.
"""
