"""Calls of barclamps' hooks as stored: the queue of calls, the views that hooks are shown, and the effects of calls.

Used by the annealer, which makes the calls. It must never load or run the code of a barclamp.
"""
