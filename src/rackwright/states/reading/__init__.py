"""Reads state files: where they come from, templates, YAML with line numbers, and the declarations in them.

Used by the plan of a run. It must never touch the machine it runs on.
"""
