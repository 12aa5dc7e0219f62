"""Calls of barclamps' hooks as stored: the queue of them, what they are shown, and what they may change.

Used by the annealer, which makes the calls. It must never load or run the code of a barclamp.
"""
