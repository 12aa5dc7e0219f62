"""Barclamp files: read with their line numbers, checked entry by entry, with errors a person can act on.

Used by the loader of barclamps and wherever values of attribs are checked. Pure.
"""
