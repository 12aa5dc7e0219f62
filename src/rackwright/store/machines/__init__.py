"""Nodes and the machines behind them: registration, boot, installs, keys, power saving, members of the mesh.

Used by the annealer and the API. It must never reach a machine: it only stores what is known and wanted.
"""
