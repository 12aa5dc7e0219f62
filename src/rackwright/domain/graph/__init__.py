"""The noderole graph: binding, removal, snapshots, upgrades, and why a noderole waits.

Used by the store, which reads and writes what these rules work out. Pure.
"""
