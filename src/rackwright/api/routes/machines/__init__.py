"""Routes that machines call: what they boot, and what they report of themselves. Served on the machines' listener.

Used by `api.app`. They must never believe more of a machine than its key proves.
"""
