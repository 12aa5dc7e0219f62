"""Reading of barclamp files: YAML with line numbers, checked entry by entry, with errors a person can act on.

Used by the loader of barclamps and wherever values of attribs are checked. Pure.
"""
