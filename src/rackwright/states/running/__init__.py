"""Executes a plan: the event loop, the calls of state functions, decisions about requisites, and records of results.

Used by the command line, the node's engine and the mesh. It must never read a state file.
"""
