"""The mesh: agents on servers that know who is alive, share a datastore, and run states on each other.

Used by the command line and, through `client.py` alone, by the control plane. It must never know the store or the API.
"""
