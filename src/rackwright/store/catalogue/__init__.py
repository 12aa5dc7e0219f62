"""Barclamps as imported: roles, jigs and attribs as stored and as shown, their files, and data people submit.

Used by the graph, the annealer and the API. It must never run the code of a barclamp.
"""
