"""Carrying out a plan: the loop, one call of a state after another or together, verdicts and records.

Used by the command line, the node's engine and the mesh. It must never read a state file.
"""
