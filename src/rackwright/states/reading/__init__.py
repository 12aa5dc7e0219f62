"""From files to declarations: sources of states, templates, YAML with line numbers.

Used by the plan of a run. It must never touch the machine it runs on.
"""
